package faults

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

func judgeOf(h *History, b Backend) check.Judgement {
	p := check.Play{
		Backend: b.Name, Terms: claim.TermsOf(b.Name, b.Claims), Fencing: b.Fencing, Began: h.Began, Stopped: h.Stopped, Probes: h.Probes, Left: h.Left,
		Hosts: make([]check.Host, len(h.Schedule.Hosts)),
	}
	for i := range p.Hosts {
		p.Hosts[i] = check.Host{Seen: h.Seen[i], Alive: h.Alive[i], Crashed: h.Crashed[i], Stood: slices.Clone(h.Gaps)}
	}
	for i, g := range h.Schedule.Groups {
		p.Names = append(p.Names, slices.Repeat([]check.Name{{Op: g.Kind, AtLeast: time.Duration(g.AtLeast), Setting: h.setting(i, b)}}, g.Names)...)
	}
	h.events(&p)
	h.machine(&p)
	return check.Judge(p)
}

// The events method adds to p each event's time, the hosts it stopped and the conditions it caused.
func (h *History) events(p *check.Play) {
	for _, m := range h.Marks {
		a := m.action()
		if m.From == 0 {
			continue
		}
		p.Events = append(p.Events, check.Span{m.From, m.To})
		var made []check.Made
		for _, c := range a.Makes {
			if m.To == 0 || m.To-m.From >= int64(a.MakesAfter) {
				made = append(made, check.Made{Condition: c, From: m.From})
			}
		}
		if a.On != OnHost {
			p.Made = append(p.Made, made...)
		}
		for i := range p.Hosts {
			on, itself := &p.Hosts[i], a.On == OnHost && m.Target == i
			if itself {
				on.Made = append(on.Made, made...)
			}
			if a.Ends && m.Target == i && on.Ended == 0 {
				on.Ended = m.From
			}
			switch {
			case a.Stops == StopsAll, a.Stops == StopsHost && m.Target == i:
				on.Silent = append(on.Silent, a.stopped(m)...)
				fallthrough
			case a.Stops == StopsGrants:
				on.Unserved = append(on.Unserved, a.stopped(m)...)
			}
		}
	}
}

// stopped returns the periods in which hosts may have gone unserved because of the action a.
func (a Action) stopped(m Mark) []check.Span {
	most := int64(a.StopsFor)
	if most == 0 || m.To-m.From < most {
		return []check.Span{{m.From, m.To + int64(a.Recovers)}}
	}
	return []check.Span{{m.From, m.From + most}, {m.To, m.To + int64(a.Recovers)}}
}

// starvedFor is the longest time for which the search, a host or a server may get no processor. If
// it is exceeded, the machine is starved, and claims with time limits are not judged. The limit
// does not apply to the pause of a host that an action may have stopped.
const starvedFor = 200 * time.Millisecond

// starvedRunQueue is the highest number of runnable threads per processor at which claims with time
// limits are judged. With more threads, servers and plugins are late, and no heartbeat shows this.
const starvedRunQueue = 8

// The machine method records in p when each host did not run, and whether the machine was starved.
func (h *History) machine(p *check.Play) {
	long := func(s check.Span) bool { return s[1]-s[0] > int64(starvedFor) }
	p.Starved = h.RunQueue > starvedRunQueue || h.Waited > starvedFor || slices.ContainsFunc(h.Gaps, long)
	for i := range p.Hosts {
		for _, halt := range h.Seen[i].Halts {
			p.Hosts[i].Stood = append(p.Hosts[i].Stood, check.Span{halt.From, cmp.Or(halt.To, h.Stopped)})
			// An event that was going on in the second before the halt may have stopped the host.
			disturbed := p.Interrupted(check.Span{halt.From - int64(time.Second), halt.From})
			p.Starved = p.Starved || long(check.Span{halt.From, halt.To}) && !disturbed
		}
	}
}

// setting returns the values that determine the time limits of claims about a group's locks.
func (h *History) setting(group int, b Backend) claim.Setting {
	of := kinds.Of(b.Name)
	s := claim.Setting{Terms: claim.TermsOf(b.Name, b.Claims), FirstSpan: b.FirstSpan, TTL: time.Duration(h.Schedule.Groups[group].TTL)}
	for _, m := range h.Marks {
		a := m.action()
		if m.From == 0 {
			continue
		}
		s.Swallowed = s.Swallowed || a.Swallows || a.Stops != StopsNobody && a.Uses != UsesPlugin // a host sees the end of its plugin at once
		if a.On == OnHost && a.Stops != StopsNobody {
			s.Absent += h.Schedule.Hosts[m.Target].Callers[group]
		}
		if a.Uses == UsesPlugin {
			s.Failures++
		}
		if a.On != OnHost && of.Has(servers.CapVotes) { // after a restart, a server does not vote for a while
			s.MaxTTL = maxTTL
		}
	}
	return s
}
