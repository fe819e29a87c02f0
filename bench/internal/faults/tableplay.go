package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

const (
	// lockCount is the number of locks that one host (the holder) has and another (the rival) wants.
	lockCount = 20
	// TTL is the TTL of all leases, except in faults that set a TTL of their own.
	TTL = 2 * time.Second
)

// Plan lists backends and faults. Each fault is played Rounds times on each backend.
type Plan struct {
	Backends []Backend
	Faults   []Fault
	Rounds   int
	// Seed determines the random moments, between two renewals, at which the faults are injected.
	Seed uint64
}

var Quick = []string{
	"freeze-host", "kill-host", "kill-plugin", "partition-holder", "restart-wiped", "failover", "clock-forward", "lost-reply",
}

// Cells returns the number of pairs of a backend and a fault that concerns this backend (all), and
// the number of those pairs that this machine can run (runnable).
func (p Plan) Cells() (all, runnable int) {
	for _, f := range p.Faults {
		for _, b := range p.Backends {
			if p.concerns(f, b) {
				all++
				if missing(b, f) == "" {
					runnable++
				}
			}
		}
	}
	return all, runnable
}

func NoServers(backend string) string {
	return fmt.Sprintf("lockbench does not know how to start servers for %[1]s: --server '%[1]s=COMMAND -p {port} -d {dir}' says so", backend)
}

// missing returns the reason why this machine cannot run fault f on backend b, or "" if it can.
func missing(b Backend, f Fault) string {
	if !kinds.Of(b.Name).Known() {
		return NoServers(b.Name)
	}
	return f.Fits(kinds.Of(b.Name))
}

// concerns reports whether the fault f concerns the backend b. If f concerns no backend of the
// plan, concerns returns true for every backend, so that each result says why f was not run.
func (p Plan) concerns(f Fault, b Backend) bool {
	does := func(b Backend) bool { return f.Concerns(kinds.Of(b.Name)) }
	return does(b) || !slices.ContainsFunc(p.Backends, does)
}

// Run carries out the plan p. It calls the function begin before each pair of a backend and a
// fault, and the function took after each round (the pair played once). All calls come from one
// goroutine. If a pair cannot be run, its only round says what is missing. If a round fails, its
// result says why, and Run goes on with the next pair. Run ends early only if ctx ends, took
// returns an error, or Run cannot make or clean up its temporary directories.
func Run(ctx context.Context, p Plan, begin func(label string), took func(results.Round) error) (err error) {
	scratch, err := servers.NewScratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	began, random := proc.Now(), rand.New(rand.NewPCG(p.Seed, 0x73616665))
	for _, f := range p.Faults {
		for _, b := range p.Backends {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !p.concerns(f, b) {
				continue
			}
			begin(fmt.Sprintf("%s, %s", b.Name, f.Name))
			c := &cell{backend: b, fault: f, ttl: cmp.Or(f.TTL, TTL), dir: scratch.Dir(), began: began, random: random}
			if err := c.rounds(ctx, p.Rounds, took); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	holderHost = 0
	rivalHost  = 1
	waiterHost = 2
)

const (
	// openTimeout is the time limit for the holder to get its first locks.
	openTimeout = 30 * time.Second
	// tryFor is the time limit for the holder to get the second half of its locks after the Prepare
	// events. It is short, because these events may make all grants impossible.
	tryFor = time.Second
	// queueing is the time that the rival gets to enter the queues of the locks that it wants.
	queueing = 200 * time.Millisecond
	// A fault goes on until the rival has every lock, but at most for 20 s (recovery) plus a TTL. If
	// the fault sets Acts or ActsTTLs, these set the limit instead.
	recovery = 20 * time.Second
	// givingBack is the time from the start of an outage until the holder releases locks.
	givingBack = 300 * time.Millisecond
	// aftermath is the time for which hosts still use their locks after the rival has got every lock.
	// In this time, late writes reach the files.
	aftermath = 400 * time.Millisecond
	// lateness is the time that a resumed holder gets to finish its late writes.
	lateness = 100 * time.Millisecond
)

// cell is one fault on one backend, with the values that all its rounds share.
type cell struct {
	backend Backend
	fault   Fault
	ttl     time.Duration
	dir     string
	began   int64 // all recorded times count from this time
	random  *rand.Rand
}

func (c *cell) rounds(ctx context.Context, count int, took func(results.Round) error) (err error) {
	b, f := c.backend, c.fault
	template := results.Round{
		Backend: b.Name, Claims: b.Claims, Kind: results.KindPlugin, Fencing: b.Fencing, FirstSpanNs: int64(b.FirstSpan), Fault: f.Name, Conditions: f.Produces, Control: f.Control,
		// If the store lives in the plugin, the leases are lost when the plugin dies.
		Keeps: f.KeepsLeases && !c.alone(), Missing: missing(b, f),
	}
	if template.Missing != "" {
		return took(template)
	}
	b.Config = driver.Config{}
	maps.Copy(b.Config, c.backend.Config)
	maps.Copy(b.Config, f.Config)
	x, err := newPlayers(b, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	x.needs, x.ttl, x.files = f.Needs, c.ttl, c.dir
	for n := range count {
		round := template
		round.Round, round.Names, round.TTLms = n+1, lockCount, c.ttl.Milliseconds()
		s, hit := c.schedule(time.Duration(c.random.Int64N(int64(c.ttl / 3)))) // a random time between two renewals
		h, err := x.play(ctx, s)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, servers.ErrNotInstalled) {
			template.Missing = err.Error()
			return took(template)
		}
		if h != nil {
			c.collect(&round, h, hit)
		}
		if err != nil {
			round.Failure = err.Error()
		}
		if err := took(round); err != nil {
			return err
		}
		if round.Failure != "" {
			// Play no further round, because this round may have left data on the servers.
			return nil
		}
	}
	return nil
}

// The alone method reports whether one host is holder and rival, because its plugin has the store.
func (c *cell) alone() bool { return kinds.Of(c.backend.Name).InHost() }

// schedule returns the schedule for playing the fault once. The holder gets half of the locks, the
// Prepare events happen, and the holder gets the other half. The rival asks for all locks before or
// after the fault. The fault is event number hit, counted from 1. At the end, the holder releases
// its locks and asks for them again. This shows whether some lock can no longer be granted.
func (c *cell) schedule(phase time.Duration) (s Schedule, hit int) {
	f, rival, of := c.fault, rivalHost, kinds.Of(c.backend.Name)
	if f.OnWaiter {
		return c.onWaiter(phase)
	}
	s.Backend, s.Setting, s.Hosts = of.Name, f.setting(of), make([]HostPlan, 2)
	if c.alone() {
		rival, s.Hosts = holderHost, s.Hosts[:1]
	}
	for i := range s.Hosts {
		s.Hosts[i].Callers = make([]int, 2)
	}
	for range 2 {
		s.Groups = append(s.Groups, Group{Kind: results.OpLock, Names: lockCount / 2, TTL: Duration(c.ttl), Once: true})
	}
	add := func(e Event) (number int) {
		s.Events = append(s.Events, e)
		return len(s.Events)
	}
	last := add(Event{Action: Ask, Group: 1, Limit: Duration(openTimeout)})
	second := Event{Action: Ask, Group: 2, Limit: Duration(openTimeout), After: last, Trigger: TriggerServed}
	for _, e := range known(of, s.Setting, f.Prepare) {
		if e.Lasts == 0 {
			e, _ = c.lasting(e, rival)
		}
		e.After, e.Trigger, e.Lasts = last, TriggerServed, e.Lasts+Duration(phase)
		second.After = add(e)
		second.Limit, second.Trigger = Duration(tryFor), ""
	}
	last = add(second)
	want := Event{Action: Ask, Target: rival, Limit: Duration(2 * (c.ttl + recovery)), After: last, Trigger: TriggerServed}
	harm, ended := c.lasting(known(of, s.Setting, f.Events)[0], rival)
	harm.After, harm.At = last, Duration(queueing+phase)
	if f.RivalAsksLate {
		harm.Trigger, harm.At = TriggerServed, Duration(phase)
		hit = add(harm)
		want.After, want.Trigger = hit, ""
		add(want)
	} else {
		harm.After = add(want)
		hit = add(harm)
	}
	if f.Restores != "" {
		add(Event{Action: GiveBack, Group: 2, After: hit, Since: Begun, At: Duration(givingBack)})
	}
	if !c.alone() {
		last = add(Event{Action: GiveBack, After: hit, Since: Healed, At: Duration(ended)})
		add(Event{Action: Ask, Limit: Duration(recovery), After: last, Trigger: TriggerServed, Of: rival})
	}
	return s, hit
}

func (c *cell) onWaiter(phase time.Duration) (s Schedule, hit int) {
	of := kinds.Of(c.backend.Name)
	s.Backend, s.Setting, s.Hosts = of.Name, c.fault.setting(of), slices.Repeat([]HostPlan{{Callers: make([]int, 2)}}, 3)
	s.Groups = []Group{
		{Kind: results.OpLock, Names: lockCount / 2, TTL: Duration(c.ttl), AtLeast: Duration(100 * time.Millisecond), Once: true},
		{Kind: results.OpLead, Names: lockCount / 2, TTL: Duration(c.ttl), Value: 8 << 10, Once: true},
	}
	limit := Duration(2 * (c.ttl + recovery))
	harm, _ := c.lasting(c.fault.Events[0], rivalHost)
	harm.After, harm.At = 2, Duration(queueing+phase)
	s.Events = []Event{
		{Action: Ask, Limit: Duration(openTimeout)},
		{Action: Ask, Target: waiterHost, Limit: limit, After: 1, Trigger: TriggerServed},
		harm,
		{Action: Ask, Target: rivalHost, Limit: limit, After: 3},
		{Action: GiveBack, After: 3, At: Duration(queueing / 2)}, // the plugin of the frozen host still waits for locks
	}
	return s, 3
}

// lasting returns the event e, changed to end soon after the rival has every lock, or when the
// fault's time is over. The result ended is the time from the end of e to the release of the locks.
func (c *cell) lasting(e Event, rival int) (_ Event, ended time.Duration) {
	e.Until = rival + 1
	if acts := max(c.fault.Acts, time.Duration(c.fault.ActsTTLs*float64(c.ttl))); acts > 0 {
		// When the rival has every lock, the event goes on for half a TTL. In this time, a holder that
		// does not know of its loss sends renewals.
		e.Lasts, e.Linger = Duration(acts), Duration(c.ttl/2)
		return e, aftermath
	}
	// The event ends only after the rival has written with its tokens. Otherwise a renewal may tell
	// the holder of its loss before the rival has made a newer write.
	e.Lasts, e.Linger = Duration(c.ttl+recovery), Duration(aftermath)
	return e, lateness
}

// collect copies what happened, and the first failure, from the history h into the round r.
func (c *cell) collect(r *results.Round, h *History, hit int) {
	m := h.Marks[hit-1]
	r.InjectedNs, r.HealedNs = m.From, m.To
	r.BackNs = map[Moment]int64{Injected: m.Done, Healed: m.To}[c.fault.Restores]
	if c.fault.OnWaiter {
		r.BackNs = m.Done
	}
	if slices.Contains(c.fault.Produces, claim.HostStopped) { // the host is stopped until the event is healed
		r.Halts = append(r.Halts, results.Halt{Host: m.Target, Why: results.HaltFrozen, From: m.From, To: m.To})
	}
	for i, on := range h.Hosts {
		r.Holds = append(r.Holds, on.Holds...)
		r.Writes = append(r.Writes, on.Writes...)
		r.Halts = append(r.Halts, on.Halts...)
		if !on.Alive {
			r.Halts = append(r.Halts, results.Halt{Host: i, Why: results.HaltKilled, From: m.From})
		}
	}
	r.Hits = hits(h.Hosts[holderHost].Seen, m.From)
	for _, m := range h.Marks {
		switch {
		case r.Failure != "":
		case m.Failed != "":
			r.Failure = fmt.Sprintf("%s: %s", m.Action, m.Failed)
		case m.Trigger != "" && !m.Met:
			r.Failure = fmt.Sprintf("%s: host %d does not get its locks: %v", m.Action, m.Of, h.Hosts[m.Of].Failed())
		}
	}
	if r.Failure == "" && !c.alone() {
		r.Failure = without(h.Hosts[rivalHost].Seen)
	}
	r.Shift(-c.began)
	slices.SortStableFunc(r.Holds, func(a, b results.Hold) int { return int(a.GrantedNs - b.GrantedNs) })
}

// without returns an error text if the rival has not been granted every lock, and otherwise "". The
// round shows nothing about a lock that the rival was never granted.
func without(rival results.Seen) string {
	granted := map[int]bool{}
	for _, h := range rival.Holds {
		granted[h.Name] = true
	}
	if len(granted) == lockCount {
		return ""
	}
	return fmt.Sprintf("host %s was granted only %d of the %d locks that it wants: %v", hostName(rivalHost), len(granted), lockCount, rival.Failed())
}

// hits counts the locks that a host held at t=at, and its requests that had failed before t=at.
func hits(seen results.Seen, at int64) int {
	n := 0
	for _, l := range seen.Holds {
		over := l.DoneNs > 0 && l.DoneNs < at || l.ReleaseNs > 0 && l.ReleaseNs < at
		if l.GrantedNs < at && !over {
			n++
		}
	}
	for _, call := range seen.Calls {
		if call.Failed() && call.BackNs < at {
			n++
		}
	}
	return n
}
