package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/internal/faults"
	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// election is the state of the candidates in one measurement of takeovers.
type election struct {
	in   Input
	mode mode

	cell     results.Cell
	slack    time.Duration // a takeover that comes later than this after the end of the TTL is late
	kept     int           // number of names that the harmed leader still leads
	earliest time.Duration // the longest time by which a takeover was too early
	passing  *trips
	taken    []span // takeovers

	system *faults.System // its hosts are the candidates; only the goroutine that runs the cell uses it

	mu      sync.Mutex
	changed chan struct{}  // closed and replaced at each report
	terms   []results.Hold // Hold.Host is the number of the candidate
	failed  []results.Attempt
	seats   []int  // for each name, the index of its last term in the terms slice; -1 for none
	failure string // the last error of a candidate
}

func newElection(in Input, m mode) *election {
	s := &election{
		in: in, mode: m, changed: make(chan struct{}), system: &faults.System{Environment: &servers.Environment{}},
		seats: slices.Repeat([]int{-1}, len(in.Names)),
	}
	s.begin()
	return s
}

// join starts one more candidate. If the mode (the way to make a leader fail) breaks connections,
// the candidate reaches the store through proxies.
func (s *election) join(ctx context.Context) (err error) {
	c := &faults.Host{Number: len(s.system.Hosts), Dir: filepath.Join(s.system.Dir, fmt.Sprint(len(s.system.Hosts)))}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	spec := s.in.Host
	spec.TempDir = c.Dir
	if s.mode.proxied() {
		spec.Config, err = kinds.Route(spec.Backend, spec.Config, func(address string) (string, error) {
			p, err := inject.NewProxy(address)
			if err != nil {
				return "", err
			}
			s.system.AtEnd(p.Close)
			c.Paths = append(c.Paths, p)
			return p.Addr(), nil
		})
		if err != nil {
			return err
		}
	}
	if c.Process, err = startHost(ctx, spec, s.in.Clock); err != nil {
		return err
	}
	s.system.Hosts = append(s.system.Hosts, c)
	return s.campaign(c)
}

const (
	// workEvery is the interval at which a leader checks its lease, as a program does before work.
	workEvery = 5 * time.Millisecond
	// between is the pause of a candidate after an error or after its term, so that another candidate
	// can become the leader.
	between = 100 * time.Millisecond
)

func (s *election) campaign(c *faults.Host) error {
	c.Follow(func(t *results.Hold, call *results.Call) { s.hear(c, t, call) })
	for i, name := range s.in.Names {
		err := c.Work(host.Workload{
			Kind: results.OpLock, Name: name, First: i, Names: 1, Callers: 1, TTL: s.in.TTL, Tick: s.in.Tick, Look: workEvery,
			Limit: host.Forever, Hold: host.Forever, Pause: host.Range{between, between},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// harm applies the mode's actions to the victim, which is the leader. If the actions kill the
// victim, harm records the end of the victim's terms, because a dead host cannot report it.
func (s *election) harm(ctx context.Context, h *incident) error {
	if s.mode.inject != nil {
		return s.mode.inject(ctx, s, h)
	}
	for _, a := range s.mode.actions {
		if err := s.system.Inject(ctx, event(a, h)); err != nil {
			return err
		}
	}
	if !s.mode.kills {
		return nil
	}
	<-h.victim.Ended()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.in.Clock.Now()
	for i := range s.terms {
		if t := &s.terms[i]; t.Host == h.victim.Number && t.Held() {
			t.ValidNs, t.DoneNs, t.Cause = max(h.from, t.GrantedNs), now, results.HaltKilled
		}
	}
	return nil
}

func (s *election) heal(h *incident) error {
	return inject.Each(s.mode.actions, func(a string) error { return s.system.End(event(a, h)) })
}

func event(action string, h *incident) faults.Event {
	return faults.Event{Action: action, Target: h.victim.Number}
}

func (s *election) hear(c *faults.Host, t *results.Hold, failed *results.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t != nil:
		s.term(c, *t)
	case failed.Outcome == results.CallFailed:
		s.failure = failed.Error
		if failed.Op == results.OpLock {
			s.failed = append(s.failed, results.Attempt{
				Client: int32(c.Number), Name: int32(failed.Name), Asked: failed.SentNs, Answered: failed.BackNs, Outcome: results.Failed,
			})
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// term stores the newest state of a term. If the term is new, its candidate now leads the name.
func (s *election) term(c *faults.Host, t results.Hold) {
	t.Host = c.Number
	i := slices.IndexFunc(s.terms, func(o results.Hold) bool {
		return o.Host == t.Host && o.Name == t.Name && o.GrantedNs == t.GrantedNs
	})
	if i < 0 {
		s.seats[t.Name] = len(s.terms)
		s.terms = append(s.terms, t)
		return
	}
	s.terms[i] = t
}

// await waits until the done function returns true, but at most for the time in limit. It calls
// done while it holds mu.
func (s *election) await(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		s.mu.Lock()
		ok, changed, failure := done(), s.changed, s.failure
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			if failure != "" {
				failure = ": " + failure
			}
			return fmt.Errorf("%w: not within %v: %s%s", ErrNothingDone, limit, what, failure)
		}
	}
}

// led returns a function that reports whether every name has a leader. The term of that leader must
// have been granted later than the time in after.
func (s *election) led(names []int32, after int64) func() bool {
	return s.all(names, func(t results.Hold) bool { return t.GrantedNs > after })
}

// confirmed returns a function that reports whether every name has a leader whose grant returned,
// or whose last renewal was sent, later than the time in after.
func (s *election) confirmed(names []int32, after int64) func() bool {
	return s.all(names, func(t results.Hold) bool {
		renewed := t.GrantedNs
		if n := len(t.Renewals); n > 0 {
			renewed = t.Renewals[n-1][0]
		}
		return renewed > after
	})
}

// all returns a function that reports whether every name has a leader. The like function must
// return true for the term of that leader.
func (s *election) all(names []int32, like func(results.Hold) bool) func() bool {
	return func() bool {
		return !slices.ContainsFunc(names, func(n int32) bool {
			i := s.seats[n]
			return i < 0 || !s.terms[i].Held() || !like(s.terms[i])
		})
	}
}

// end closes the hosts, even if ctx has ended. If an interrupted measurement has left a fault in
// effect, end first heals the fault.
func (s *election) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	healed := s.system.EndBackground()
	closed := inject.AtOnce(len(s.system.Hosts), func(i int) error { return s.system.Hosts[i].Close(ctx) })
	return errors.Join(healed, closed, s.system.Close())
}

const (
	// rounding is the time by which a lease may end early if its store counts whole milliseconds.
	rounding = 2 * time.Millisecond
	// margin is the longest time that a takeover may take beyond the TTL and one round trip.
	margin = 50 * time.Millisecond
)

// These are the names of the measured times, which are in nanoseconds.
const (
	tookOver = "takeover" // from the fault to the grant of the new leader
	overdue  = "overdue"  // from the end of the TTL to the grant of the new leader
	notice   = "notice"   // from the resumption of a frozen leader until it knew that it lost
)

// begin prepares the figures. If a lease ends only by its TTL, begin adds the band, which consists
// of the shortest and the longest time that a takeover may take.
func (s *election) begin() {
	s.cell = results.Cell{Latencies: map[string][]int64{}, Values: map[string]float64{}}
	s.slack = margin + kinds.Of(s.in.Host.Backend).ExpiryStep + s.in.Tick + roundTrip(s.in)
	if s.mode.expires {
		v := s.cell.Values
		v["band-low-ns/takeover"], v["band-high-ns/takeover"] = float64(s.in.TTL-s.in.TTL/3-rounding), float64(s.in.TTL+s.slack)
		v["early"], v["late"] = 0, 0
	}
}

func (s *election) took(what string, ns int64) {
	s.cell.Latencies[what] = append(s.cell.Latencies[what], ns)
}

// roundTrip measures the time of one request to the store, or returns 0 if it cannot measure it.
func roundTrip(in Input) time.Duration {
	l, ok := in.Locker.(interface{ Client() *core.Client })
	if !ok || len(in.Names) == 0 {
		return 0 // the locker is of another library
	}
	e, err := l.Client().Elector(in.Names[0], &core.ElectorOptions{TTL: in.TTL})
	if err != nil {
		return 0
	}
	var took []time.Duration
	for range 9 {
		start := time.Now()
		if _, err := e.Leader(context.Background()); err != nil {
			return 0
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func (s *election) sample(h *incident) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range h.names {
		before, after := h.before[i], s.seats[n]
		s.cell.Cycles++
		if after == before {
			s.kept++
			continue
		}
		t := s.terms[after]
		s.taken = append(s.taken, span{h.from, t.GrantedNs})
		if s.mode.expires {
			s.judge(h, s.terms[before], t.GrantedNs)
		}
	}
}

// judge compares the time of a takeover with the end of the old lease. If a renewal was due at
// about the time of the fault, the store may have renewed the lease although no report shows it.
func (s *election) judge(h *incident, old results.Hold, since int64) {
	if old.SentNs == 0 {
		return // the end of the lease is unknown
	}
	ttl := int64(s.in.TTL)
	sent, confirmed := old.SentNs, old.GrantedNs
	if n := len(old.Renewals); n > 0 {
		sent, confirmed = old.Renewals[n-1][0], old.Renewals[n-1][1]
	}
	from, by := sent+ttl, confirmed+ttl // the lease expires between these two times
	if h.until >= sent+ttl/3-int64(margin) {
		by = max(by, h.until+ttl)
	}
	s.took(overdue, max(0, since-by))
	switch {
	case since < from-int64(rounding):
		s.cell.Values["early"]++
		s.earliest = max(s.earliest, time.Duration(from-since))
	case since > by+int64(s.slack):
		s.cell.Values["late"]++
	}
}

// noticed waits until the victim (the old leader) knows that it leads none of its names any more.
// If resumed is not 0, noticed counts the names that the victim believed to lead after that time.
func (s *election) noticed(ctx context.Context, h *incident, resumed int64) error {
	all := func() bool {
		return !slices.ContainsFunc(h.before, func(i int) bool { return s.terms[i].DoneNs == 0 })
	}
	if err := s.await(ctx, s.in.TTL+grace, "the old leader knows that it lost", all); err != nil || resumed == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stale := s.cell.Values["stale-writes"]
	for _, i := range h.before {
		t := s.terms[i]
		s.took(notice, max(0, t.DoneNs-resumed))
		if t.ValidNs > resumed {
			stale++
		}
	}
	s.cell.Values["stale-writes"] = stale
	return nil
}

func (s *election) measured(elapsed time.Duration) results.Cell {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cell
	c.Elapsed = elapsed
	s.passing.note(&c, tookOver, s.taken)
	c.Attempts = s.failed
	for _, t := range s.terms {
		c.Attempts = append(c.Attempts, t.Attempt())
	}
	for op := range c.Latencies {
		longest(&c, op)
	}
	if early := c.Values["early"]; early > 0 {
		c.Findings = []string{fmt.Sprintf("%v of %d names had a new leader before the TTL of the old one was over, by up to %v", early, c.Cycles, s.earliest)}
	}
	if s.mode.server {
		c.Values["kept"] = float64(s.kept) / float64(max(1, c.Cycles))
	}
	return c
}
