package faults

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// teardown ends all callers and hosts, except living hosts of a soak, and looks for leftovers.
func (p *player) teardown(ctx context.Context, w *System, h *History) error {
	h.Stopped = proc.Now()
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = inject.AtOnce(len(w.Hosts), func(i int) error {
		if !w.Hosts[i].Alive() {
			return nil
		}
		return w.Hosts[i].Release(releasing)
	}) // the look method finds locks that were not released
	over := w.Hosts
	if p.soak {
		over = slices.DeleteFunc(slices.Clone(w.Hosts), func(h *Host) bool { return h.Alive() })
	}
	for _, of := range w.Hosts {
		h.Hosts = append(h.Hosts, check.Host{Alive: of.Alive()})
	}
	h.Left = leave(over)
	for i, of := range w.Hosts {
		on := &h.Hosts[i]
		on.Seen, on.Crashed = of.Seen(), of.Crashed()
		on.Alive = on.Alive && !on.Crashed
	}
	if p.files != "" {
		return nil
	}
	if err := p.look(ctx, w, h); err != nil {
		return err
	}
	if p.soak {
		h.Left = append(h.Left, deaf(ctx, w.Hosts, h.prefix)...)
	}
	if err := p.inStore(ctx, h); err != nil || !p.soak {
		return err
	}
	return p.use(ctx, w)
}

// The leave function ends hosts, and describes the processes and files that they leave behind.
func leave(hosts []*Host) []string {
	plugins := make([]int, len(hosts))
	for i, h := range hosts {
		plugins[i] = h.PluginPid()
	}
	left := shutAll(hosts)
	for i, h := range hosts {
		left = append(left, leftOf(h, plugins[i])...)
	}
	return left
}

// inStore adds to h.Left the data that hosts left in the store. It waits up to maxTTL until there
// are no such data, because leases and queue entries of dead hosts must expire first.
func (p *player) inStore(ctx context.Context, h *History) error {
	var left []string
	for deadline := time.Now().Add(maxTTL); ; {
		var err error
		if left, err = p.environment.Leftovers(ctx, h.prefix); err != nil {
			return err
		}
		if len(left) == 0 || time.Now().After(deadline) || !proc.Sleep(ctx, 200*time.Millisecond) {
			break
		}
	}
	for _, key := range left {
		h.Left = append(h.Left, "in the store: "+key)
	}
	return nil
}

func leftOf(h *Host, plugin int) []string {
	var left []string
	for deadline := time.Now().Add(claim.ProcessGone); plugin > 0 && syscall.Kill(plugin, 0) == nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			left = append(left, fmt.Sprintf("plugin process %d of host %s", plugin, h.Name()))
			break
		}
	}
	files, err := os.ReadDir(h.Dir)
	if err != nil {
		return append(left, err.Error())
	}
	for _, f := range files {
		left = append(left, fmt.Sprintf("%s in the temporary directory of host %s", f.Name(), h.Name()))
	}
	return left
}

// deaf makes each living host acquire a new lock, and describes the hosts that cannot acquire it.
// The locks of the schedule do not reveal such a host, because other hosts acquire them.
func deaf(ctx context.Context, hosts []*Host, prefix string) []string {
	// A host pauses for up to PluginBack before it restarts a plugin that fails again and again.
	ctx, cancel := context.WithTimeout(ctx, claim.PluginBack(9)+startTimeout+endTimeout)
	defer cancel()
	failures := make([]string, len(hosts))
	_ = inject.AtOnce(len(hosts), func(i int) error {
		h := hosts[i]
		if !h.Alive() {
			return nil
		}
		lock, err := h.Lock(fmt.Sprint(prefix, h.Name()), maxTTL)
		if err != nil {
			return err
		}
		if lease, err := lock.Acquire(ctx); err != nil {
			failures[i] = fmt.Sprintf("host %s cannot acquire a free lock: %v", h.Name(), err)
		} else {
			_ = lease.Release(ctx) // inStore finds a lock that is left
		}
		return nil
	})
	return slices.DeleteFunc(failures, func(s string) bool { return s == "" })
}

// The look method starts a host that acquires every lock, to find locks that were not released.
func (p *player) look(ctx context.Context, w *System, h *History) error {
	probe, err := host.Start(ctx, p.spec(nil, len(w.Hosts), w.Dir, p.backend.Path))
	if err != nil {
		return err
	}
	defer func() {
		if err := shut(probe); err != nil {
			h.Left = append(h.Left, fmt.Sprintf("the host that looked at the locks at the end: %v", err))
		}
	}()
	asked := proc.Now()
	timeout := maxTTL + endTimeout
	bounded, cancel := context.WithTimeout(ctx, timeout+endTimeout)
	defer cancel()
	if err := probe.Acquire(host.Locks(h.prefix, h.names(), maxTTL), timeout); err != nil {
		return err
	}
	_ = probe.Await(bounded, func(s results.Seen) bool { return len(s.Holds)+len(s.Failed()) >= h.names() })
	seen := probe.Seen()
	found := map[int]time.Duration{}
	for _, l := range seen.Holds {
		found[l.Name] = time.Duration(l.GrantedNs - asked)
	}
	for i := range h.names() {
		took, granted := found[i]
		probe := check.Probe{Name: i, Took: took}
		if !granted {
			probe.Took, probe.Error = time.Duration(proc.Now()-asked), fmt.Sprint(seen.Failed())
		}
		h.Probes = append(h.Probes, probe)
	}
	_ = probe.Release(bounded)
	return nil
}

// judge completes the record h, and judges it by the claims of the backend b.
func (h *History) judge(b Backend) check.Judgement {
	h.Backend, h.Terms, h.Fencing = b.Name, claim.TermsOf(b.Name, b.Claims), b.Fencing
	for i, g := range h.Schedule.Groups {
		h.Names = append(h.Names, slices.Repeat([]check.Name{{Op: g.Kind, AtLeast: time.Duration(g.AtLeast), Setting: h.setting(i, b)}}, g.Names)...)
	}
	for _, m := range h.Marks {
		if m.From > 0 {
			h.event(m)
		}
	}
	h.machine()
	return check.Judge(h.Play)
}

// The event method adds an event's time, the hosts it stopped and the conditions it caused.
func (h *History) event(m Mark) {
	a := m.action()
	h.Events = append(h.Events, check.Span{m.From, m.To})
	var made []check.Made
	for _, c := range a.Makes {
		if m.To == 0 || m.To-m.From >= int64(a.MakesAfter) {
			made = append(made, check.Made{Condition: c, From: m.From})
		}
	}
	if a.On != OnHost {
		h.Made = append(h.Made, made...)
	}
	for i := range h.Hosts {
		on := &h.Hosts[i]
		if a.On == OnHost && m.Target == i {
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

// The machine method notes when each host did not run, and whether the machine was starved.
func (h *History) machine() {
	long := func(s check.Span) bool { return s[1]-s[0] > int64(starvedFor) }
	h.Starved = h.RunQueue > starvedRunQueue || h.Waited > starvedFor || slices.ContainsFunc(h.Gaps, long)
	for i := range h.Hosts {
		on := &h.Hosts[i]
		on.Stood = slices.Clone(h.Gaps)
		for _, halt := range on.Halts {
			on.Stood = append(on.Stood, check.Span{halt.From, cmp.Or(halt.To, h.Stopped)})
			// An event that was going on in the second before the halt may have stopped the host.
			disturbed := h.Interrupted(check.Span{halt.From - int64(time.Second), halt.From})
			h.Starved = h.Starved || long(check.Span{halt.From, halt.To}) && !disturbed
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
