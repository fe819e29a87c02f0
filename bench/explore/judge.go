package explore

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/check"
	"github.com/lockbench/lockbench/bench/claim"
	"github.com/lockbench/lockbench/bench/record"
	"github.com/lockbench/lockbench/bench/witness"
)

// Violation is a claim that a schedule has broken.
type Violation struct {
	Rule claim.Rule `json:"rule"`
	What string     `json:"what"`
}

// verdict is the judgement of one history.
type verdict struct {
	violations []Violation
	// exempt are those of which it is written down that they happen.
	exempt []Violation
	grants int
	// starved tells that the machine gave the processes too little time for
	// claims that have times, and unjudged that such a claim seemed broken.
	starved, unjudged bool
}

// judge is the state of one judgement.
type judge struct {
	h       *History
	backend Backend
	made    map[int][]claim.Condition // by host; everywhere for all
	stops   [][]span                  // of each host: when it may not have been served
	halts   [][]span                  // of each host: when it did not run
	out     verdict
}

// span is a time from the first to the second.
type span [2]int64

// judgeOf judges what was seen of a schedule by the claims of its backend.
func judgeOf(h *History, b Backend) verdict {
	j := &judge{h: h, backend: b}
	j.circumstances()
	j.exclusion()
	j.callbacks()
	j.calls()
	j.losses()
	j.stalls()
	j.leftovers()
	return j.out
}

// circumstances sums up what the events did, and what the machine did.
func (j *judge) circumstances() {
	hosts := len(j.h.Schedule.Hosts)
	j.stops, j.halts, j.made = make([][]span, hosts), make([][]span, hosts), map[int][]claim.Condition{}
	for _, m := range j.h.Marks {
		a, err := actionOf(m.Action)
		if err != nil || m.From == 0 {
			continue
		}
		whom := everywhere
		if a.On == OnHost {
			whom = m.Target
		}
		for _, made := range a.Makes {
			j.made[whom] = append(j.made[whom], claim.Condition(made))
		}
		for host := range hosts {
			if a.Stops == StopsAll || a.Stops == StopsHost && m.Target == host {
				j.stops[host] = append(j.stops[host], span{m.From, m.To + int64(a.Recovers)})
			}
		}
	}
	for host, seen := range j.h.Seen {
		var starved int64
		for _, halt := range seen.Halts {
			j.halts[host] = append(j.halts[host], span{halt.From, cmp.Or(halt.To, j.h.Stopped)})
			if !j.disturbed(host, halt.From) {
				starved = max(starved, halt.To-halt.From)
			}
		}
		j.out.starved = j.out.starved || starved > int64(starvedFor)
	}
}

// starvedFor is the silence of a host's heartbeat that no action explains from
// which on claims that have times are not judged.
const starvedFor = 200 * time.Millisecond

// disturbed reports whether an event was under way that may stop a host from
// running.
func (j *judge) disturbed(host int, at int64) bool {
	for _, m := range j.h.Marks {
		if m.From > 0 && m.From <= at && at <= m.To+int64(time.Second) {
			return true
		}
	}
	return false
}

// overlap is how much of spans, which may overlap, lies in a time.
func overlap(spans []span, in span) time.Duration {
	sorted := slices.SortedFunc(slices.Values(spans), func(a, b span) int { return cmp.Compare(a[0], b[0]) })
	var sum int64
	at := in[0]
	for _, s := range sorted {
		from, to := max(s[0], at), min(s[1], in[1])
		if to > from {
			sum += to - from
			at = to
		}
	}
	return time.Duration(sum)
}

// everywhere stands for all hosts: what was done to one host excuses no other.
const everywhere = -1

// broken notes a claim that does not hold on a host, or everywhere, unless it is
// exempt.
func (j *judge) broken(host int, rule claim.Rule, format string, args ...any) {
	v := Violation{rule, fmt.Sprintf(format, args...)}
	made := j.made[everywhere]
	if host != everywhere {
		made = slices.Concat(made, j.made[host])
	}
	if _, known := claim.Exempt(j.backend.Name, rule, made); known {
		j.out.exempt = append(j.out.exempt, v)
		return
	}
	j.out.violations = append(j.out.violations, v)
}

// late notes a claim that has a time. A starved machine breaks none.
func (j *judge) late(host int, rule claim.Rule, format string, args ...any) {
	if j.out.starved {
		j.out.unjudged = true
		return
	}
	j.broken(host, rule, format, args...)
}

// leases are those of all hosts by name, in the order of their grants.
func (j *judge) leases() map[int][]record.Lease {
	of := map[int][]record.Lease{}
	for _, seen := range j.h.Seen {
		for _, l := range seen.Leases {
			of[l.Name] = append(of[l.Name], l)
		}
	}
	for _, leases := range of {
		slices.SortFunc(leases, func(a, b record.Lease) int { return cmp.Compare(a.GrantedNs, b.GrantedNs) })
	}
	return of
}

// exclusion judges that nobody is granted what another one has, and that tokens
// rise.
func (j *judge) exclusion() {
	round := record.Round{Backend: j.backend.Name, Kind: record.KindPlugin, Fencing: j.backend.Fencing, Names: j.h.names()}
	for name, leases := range j.leases() {
		j.out.grants += len(leases)
		round.Leases = append(round.Leases, leases...)
		for i := 1; i < len(leases); i++ {
			first, next := leases[i-1], leases[i]
			if late := first.DoneNs - next.GrantedNs; first.DoneNs > 0 && first.ReleaseNs == 0 && late > 0 &&
				overlap(j.halts[first.Host], span{next.GrantedNs - int64(time.Second), first.DoneNs}) == 0 {
				j.broken(first.Host, claim.Signal, "host %s learned of the loss of lock %d %v after host %s was granted it", hostName(first.Host), name, ms(late), hostName(next.Host))
			}
		}
	}
	section := record.Section{Backend: round.Backend, Kind: round.Kind, Fencing: round.Fencing, Scenario: "explore"}
	for name := range round.Names {
		section.Names = append(section.Names, fmt.Sprint(name))
	}
	c := check.New()
	c.Add(section, check.Attempts(round))
	for _, v := range c.Verdict().Violations {
		j.broken(everywhere, claim.Rule(v.Rule), "host %s was granted lock %s by token %d after %v and found it valid until %v, host %s by token %d after %v",
			hostName(int(v.First.Client)), v.Name, v.First.Token, j.since(v.First.Answered), j.since(v.First.Ended),
			hostName(int(v.Second.Client)), v.Second.Token, j.since(v.Second.Answered))
	}
}

// names is how many names a schedule has.
func (h *History) names() int {
	n := 0
	for _, g := range h.Schedule.Groups {
		n += g.Names
	}
	return n
}

// group is the one that a name belongs to.
func (h *History) group(name int) Group { return h.Schedule.Groups[h.groupOf(name)] }

func (h *History) groupOf(name int) int {
	for i, g := range h.Schedule.Groups {
		if name < g.Names {
			return i
		}
		name -= g.Names
	}
	return len(h.Schedule.Groups) - 1
}

func (j *judge) since(at int64) time.Duration { return ms(at - j.h.Began) }

func ms(ns int64) time.Duration { return time.Duration(ns).Round(time.Millisecond) }

// callbacks judges that no lock is released while a function runs under it.
func (j *judge) callbacks() {
	for name, leases := range j.leases() {
		for _, l := range leases {
			if j.h.group(name).Kind == witness.KindDo && l.ReleaseNs == 0 && l.Cause == "released" {
				j.broken(l.Host, claim.Callback, "host %s released lock %d after %v while the function under it ran", hostName(l.Host), name, j.since(l.DoneNs))
			}
		}
	}
}

// calls judges that calls come back in time, that nobody gives up who was served
// once, and that no host ends by itself.
func (j *judge) calls() {
	for host, seen := range j.h.Seen {
		for _, c := range seen.Calls {
			j.deadline(host, c)
			if waits(c) && c.Served && c.Outcome == witness.OutcomeFailed && c.BackNs < min(c.LimitNs-int64(claim.Slack), j.h.Stopped) {
				j.broken(host, claim.GaveUp, "%s of lock %d on host %s gave up %v before its context ended: %s", c.Op, c.Name,
					hostName(host), ms(c.LimitNs-c.BackNs), c.Error)
			}
		}
		if !j.h.Alive[host] && j.endedAt(host) == 0 {
			j.broken(host, claim.Crash, "the process of host %s has ended by itself", hostName(host))
		}
	}
}

// waits reports whether a call is one that waits for a lock.
func waits(c witness.Call) bool {
	switch witness.Kind(c.Op) {
	case witness.KindLock, witness.KindDo, witness.KindLead:
		return true
	}
	return false
}

// deadline judges the end of one call.
func (j *judge) deadline(host int, c witness.Call) {
	var grace time.Duration
	switch witness.Kind(c.Op) {
	case witness.KindLock, witness.KindTry:
		grace = claim.AcquireGrace
	case witness.KindDo, witness.KindLead:
		grace = claim.AcquireGrace + claim.ReleaseGrace
	case "release":
		grace = claim.ReleaseGrace
	default:
		grace = claim.CloseGrace
	}
	if c.LimitNs == 0 || c.BackNs > j.h.Stopped || c.BackNs < c.LimitNs+int64(grace) {
		return
	}
	stood := overlap(j.halts[host], span{c.SentNs, c.BackNs})
	if time.Duration(c.BackNs-c.LimitNs)-stood > grace {
		j.late(host, claim.Deadline, "%s of lock %d on host %s came back %v after its context had ended", c.Op, c.Name, hostName(host), ms(c.BackNs-c.LimitNs))
	}
}

// endedAt is when an event has ended a host, 0 if none has.
func (j *judge) endedAt(host int) int64 {
	for _, m := range j.h.Marks {
		if a, err := actionOf(m.Action); err == nil && a.Ends && m.Target == host && m.From > 0 {
			return m.From
		}
	}
	return 0
}

// losses judges that leases live through interruptions that are short.
func (j *judge) losses() {
	for name, leases := range j.leases() {
		ttl := time.Duration(j.h.group(name).TTL)
		bears := claim.Of(claim.Survives).Within(claim.Setting{Backend: j.backend.Name, TTL: ttl})
		for _, l := range leases {
			if l.DoneNs == 0 || l.ReleaseNs > 0 || l.Cause == "released" || l.DoneNs > j.h.Stopped || j.endedAt(l.Host) > 0 {
				continue
			}
			out := overlap(slices.Concat(j.stops[l.Host], j.halts[l.Host]), span{l.DoneNs - int64(ttl), l.DoneNs})
			if out < bears {
				j.late(l.Host, claim.Survives, "host %s lost lock %d (TTL %v, %s) after %v, although it was interrupted for %v of the last %v only", hostName(l.Host), name, ttl, l.Cause,
					j.since(l.DoneNs), out.Round(time.Millisecond), ttl)
			}
		}
	}
}

// stalls judges that a lock which is free and wanted is granted.
func (j *judge) stalls() {
	for name, leases := range j.leases() {
		for i, l := range leases {
			next := j.h.Stopped
			if i+1 < len(leases) {
				next = min(next, leases[i+1].GrantedNs)
			}
			if free := j.freeAt(l); free < next {
				j.stall(name, free, next)
			}
		}
	}
	for _, p := range j.h.Probes {
		s := j.setting(p.Name)
		bound := claim.Of(claim.LeftBehind).Within(s) + claim.Of(claim.Woken).Within(s)
		if p.Took > bound || p.Error != "" {
			j.late(everywhere, claim.LeftBehind, "lock %d (TTL %v) was not free %v after every host had ended %s", p.Name, s.TTL, p.Took.Round(time.Millisecond), p.Error)
		}
	}
}

// setting is what the bounds for a name depend on.
func (j *judge) setting(name int) claim.Setting {
	s := claim.Setting{Backend: j.backend.Name, TTL: time.Duration(j.h.group(name).TTL)}
	group := j.h.groupOf(name)
	for _, m := range j.h.Marks {
		a, err := actionOf(m.Action)
		if err != nil || m.From == 0 {
			continue
		}
		s.Swallowed = s.Swallowed || a.Swallows || a.Stops != StopsNobody
		if a.On == OnHost && a.Stops != StopsNobody {
			s.Absent += j.h.Schedule.Hosts[m.Target].Callers[group]
		}
		if a.Uses == UsesPlugin {
			s.Failures++
		}
		if a.On != OnHost && a.Uses == UsesProcess && j.backend.Name == "redlock" {
			s.MaxTTL = maxTTL
		}
	}
	return s
}

// freeAt is when a lease was over for everybody.
func (j *judge) freeAt(l record.Lease) int64 {
	switch {
	case l.ReleasedNs > 0:
		return l.ReleasedNs
	case l.ReleaseNs > 0: // its answer is not known
		return max(l.ReleaseNs, l.ValidNs) + int64(j.h.group(l.Name).TTL)
	case l.DoneNs > 0:
		return l.DoneNs + int64(time.Duration(j.h.group(l.Name).TTL)/4)
	}
	if died := j.endedAt(l.Host); died > 0 {
		return died + int64(j.h.group(l.Name).TTL)
	}
	return math.MaxInt64
}

// stall judges one time in which a lock was free.
func (j *judge) stall(name int, free, next int64) {
	s := j.setting(name)
	for host, seen := range j.h.Seen {
		if j.endedAt(host) > 0 {
			continue
		}
		for _, c := range seen.Calls {
			if !waits(c) || c.Name != name || c.Outcome == witness.OutcomeFailed || c.Outcome == witness.OutcomeClosed {
				continue
			}
			waited := span{max(free, c.SentNs), min(next, c.BackNs)}
			bound, rule := claim.Of(claim.Woken).Within(s), claim.Woken
			if j.interrupted(span{waited[0] - int64(s.TTL), waited[1]}) {
				bound, rule = claim.Of(claim.Granted).Within(s), claim.Granted
			}
			d := time.Duration(waited[1] - waited[0])
			if d < bound {
				continue
			}
			if d -= overlap(slices.Concat(j.stops[host], j.halts[host]), waited); d > bound {
				j.late(host, rule, "lock %d was free from %v on, and host %s waited %v for it", name, j.since(free), hostName(host), d.Round(time.Millisecond))
				return
			}
		}
	}
}

// interrupted reports whether an event happened in a time.
func (j *judge) interrupted(in span) bool {
	return slices.ContainsFunc(j.h.Marks, func(m Mark) bool { return m.From > 0 && m.From < in[1] && m.To > in[0] })
}

// leftovers judges that nothing is left when all hosts have ended.
func (j *judge) leftovers() {
	for _, what := range j.h.Left {
		j.broken(everywhere, claim.LeftOver, "%s", what)
	}
}
