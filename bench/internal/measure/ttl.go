package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
)

var shortTTL = Scenario{
	Name:        "ttl",
	Doc:         "how short a TTL this machine, network and store bear: hundreds of leases with TTLs from the backend's smallest up to --ttl, renewed for --for; how much of each had gone by when its renewal was confirmed, how many were lost for no fault, and how soon a lost machine is replaced",
	Processes:   true,
	PluginsOnly: true,
	Workloads: func(a Overrides) []Workload {
		return product([]int{0}, orUsual(a.Clients, leasesOfTTL), []int{0}, []time.Duration{0})
	},
	Takes: func(in Input) time.Duration { return startTime + in.For + 2*min(in.TTL, in.For) + 7*time.Second },
	Run:   runTTL,
}

const (
	// leasesOfTTL is the default number of leases for each TTL of manyFrom or longer. A shorter TTL
	// has fewer leases, so that it needs no more renewals per second, but at least fewLeases.
	leasesOfTTL = 100
	manyFrom    = time.Second
	fewLeases   = 4
)

// ttlsOf returns the TTLs to try: the backend's smallest TTL, and the larger ones from the series
// 1, 2, 5, 10 ms and so on that the backend accepts. No TTL is above longest.
func ttlsOf(p driver.Properties, longest time.Duration) []time.Duration {
	var out []time.Duration
	add := func(d time.Duration) {
		if d >= p.TTLMin && d <= min(p.TTLMax, longest) && d%max(p.TTLStep, 1) == 0 && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	add(p.TTLMin)
	for decade := time.Millisecond; decade <= longest; decade *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			add(n * decade)
		}
	}
	return out
}

// tried is one TTL that the scenario tries. Each caller has a lease with this TTL. The names
// without a caller are for the candidates of a takeover.
type tried struct {
	ttl     time.Duration
	names   []string
	callers []*load.Caller
	leases  []load.Lease // the first lease of each caller
	cell    results.Cell
	spent   []int64 // ns of the TTL that had passed at each confirmed renewal
	lost    []int64 // the times of lost leases
}

// ttlCell holds leases with several TTLs at the same time, so that a stall of the machine affects
// the leases of every TTL.
type ttlCell struct {
	in     Input
	plugin *fresh
	tried  []*tried

	mu       sync.Mutex // guards spent and lost of each TTL, and the fields below
	byName   map[string]*tried
	from     int64 // start of the measured time
	counting bool
	dropped  uint64
}

func runTTL(ctx context.Context, in Input) (cell results.Cell, err error) {
	t := &ttlCell{in: in, byName: map[string]*tried{}}
	t.plugin = &fresh{in: in, hear: t.hear}
	defer func() { err = errors.Join(err, t.plugin.close(ctx)) }()
	if err := t.plugin.open(ctx); err != nil {
		return cell, err
	}
	if err := t.acquire(ctx); err != nil {
		return cell, err
	}
	stalled, renewed := t.hold(ctx), 0
	for _, of := range t.tried {
		err = errors.Join(err, t.replace(ctx, of))
		cell.Modes = append(cell.Modes, t.measured(of, stalled))
		cell.Findings = append(cell.Findings, of.cell.Findings...)
		if len(of.spent)+len(of.lost) == 0 {
			cell.Findings = append(cell.Findings, fmt.Sprintf("TTL %v: no lease was renewed or lost, so it is not in the table", of.ttl))
		}
		renewed += len(of.spent)
	}
	if renewed == 0 && err == nil {
		err = fmt.Errorf("%w: no lease was renewed within %v", ErrNothingDone, in.For)
	}
	if t.dropped > 0 {
		cell.Findings = append(cell.Findings, fmt.Sprintf("%d events were dropped: as many renewals may be missing in the figures", t.dropped))
	}
	return cell, errors.Join(err, ctx.Err())
}

func (t *ttlCell) acquire(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := t.plugin.backend.Check(bounded); err != nil { // Check finds the smallest TTL of the store
		return err
	}
	for _, d := range ttlsOf(t.plugin.backend.Properties(), min(t.in.TTL, t.in.For)) {
		if err := t.prepare(d); err != nil {
			return err
		}
	}
	if len(t.tried) == 0 {
		return fmt.Errorf("%w: the smallest TTL of %s is %v, and leases were to be held for %v", ErrNothingDone, t.in.Host.Backend, t.plugin.backend.Properties().TTLMin, t.in.For)
	}
	for _, of := range t.tried {
		load.Workers(min(takers, len(of.callers)), func(worker int) {
			for i := worker; i < len(of.callers); i += takers {
				of.leases[i], _ = of.callers[i].Acquire(bounded)
			}
		})
		if i := slices.Index(of.leases, nil); i >= 0 {
			return fmt.Errorf("%w: a lease of %v: %w", ErrNothingDone, of.ttl, orStalled(of.callers[i].Err))
		}
	}
	return ctx.Err()
}

func (t *ttlCell) prepare(d time.Duration) error {
	n := max(min(t.in.Clients, int(int64(t.in.Clients)*int64(d)/int64(manyFrom))), fewLeases)
	of := &tried{ttl: d, leases: make([]load.Lease, n)}
	t.tried = append(t.tried, of)
	for i := range n + names {
		of.names = append(of.names, fmt.Sprintf("%s/%v/%d", t.in.Names[0], d, i))
	}
	for i, name := range of.names[:n] {
		lock, err := t.plugin.locker.Lock(name, d)
		if err != nil {
			return err
		}
		of.callers = append(of.callers, &load.Caller{Client: int32(i), Name: int32(i), Clock: t.in.Clock, Lock: lock})
		t.byName[name] = of
	}
	return nil
}

// hold keeps all leases for the measured time. It returns the longest stall of this process, in
// which the process did not run.
func (t *ttlCell) hold(ctx context.Context) (stalled time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, t.in.For)
	defer cancel()
	beat := proc.StartHeartbeat(nil)
	t.count(true)
	var held sync.WaitGroup
	for _, of := range t.tried {
		for i, c := range of.callers {
			held.Go(func() { t.keep(ctx, of, c, of.leases[i]) })
		}
	}
	<-ctx.Done()
	t.count(false)
	held.Wait()
	for _, s := range beat.Stop() {
		stalled = max(stalled, s.To.Sub(s.From))
	}
	return stalled
}

func (t *ttlCell) count(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counting = on; on {
		t.from = t.in.Clock.Now()
	}
}

// keep holds a lease until ctx ends. When the lease is lost, keep acquires a new lease.
func (t *ttlCell) keep(ctx context.Context, of *tried, c *load.Caller, lease load.Lease) {
	for ok := true; ; {
		if ok {
			kept := lease.(interface { // a plugin's lease is a lease of package core
				Done() <-chan struct{}
				Deadline() time.Time
			})
			select {
			case <-ctx.Done():
				c.Release(context.WithoutCancel(ctx), lease)
				return
			case <-kept.Done():
				t.lose(of, c, kept.Deadline())
			}
		}
		if lease, ok = c.Acquire(ctx); !ok && ctx.Err() != nil {
			return
		}
		if !ok {
			load.Pause(ctx)
		}
	}
}

// lose records a lost lease. The caller believed that it held this lease until now or, if that is
// earlier, until the deadline.
func (t *ttlCell) lose(of *tried, c *load.Caller, deadline time.Time) {
	a := &c.Attempts[len(c.Attempts)-1]
	a.Done, a.End = t.in.Clock.Now(), results.EndLost
	a.Ended = min(a.Done, t.in.Clock.Of(deadline))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counting && a.Ended >= t.from {
		of.lost = append(of.lost, a.Ended)
	}
}

// hear records how much of its TTL a lease had used up when its renewal was confirmed. It ignores
// an event without Slack, such as the first renewal after a grant to a waiter.
func (t *ttlCell) hear(e core.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.counting {
		return
	}
	t.dropped += e.Dropped
	if of := t.byName[e.Name]; of != nil && e.Kind == core.EventRenewed && e.Slack > 0 {
		of.spent = append(of.spent, int64(of.ttl-e.Slack))
	}
}

// replace measures one takeover with this TTL, in which the leader's whole machine dies. It does
// nothing if the scenario has already lost leases with this TTL.
func (t *ttlCell) replace(ctx context.Context, of *tried) error {
	in := t.in
	in.Workload = Workload{Mode: "kill-machine", Hosts: campaigners, Clients: names}
	in.TTL, in.Harms, in.Names = of.ttl, 1, of.names[len(of.callers):]
	if len(of.lost) > 0 || NotPossible(in) != "" || ctx.Err() != nil {
		return ctx.Err()
	}
	c, err := runTakeover(ctx, in)
	if err != nil && ctx.Err() == nil {
		c.Findings, err = append(c.Findings, fmt.Sprintf("a machine that was lost with TTL %v: %v", of.ttl, err)), nil
	}
	of.cell = c
	return err
}

func (t *ttlCell) measured(of *tried, stalled time.Duration) results.Cell {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := int32(len(of.callers))
	attempts, _ := load.Collect(of.callers)
	for _, a := range of.cell.Attempts {
		a.Client, a.Name = a.Client+n, a.Name+n
		attempts = append(attempts, a)
	}
	c := results.Cell{
		Cycles: len(of.spent), Elapsed: t.in.For, Attempts: attempts,
		Latencies: map[string][]int64{"spent": of.spent},
		Values: map[string]float64{
			"lost-leases": float64(len(of.lost)), "losing-stalls": float64(stalls(of.lost, of.ttl)),
			"max-ns/stall": float64(stalled), "watched-s": t.in.For.Seconds(),
		},
	}
	c.Mode, c.Names = of.ttl.String(), of.names
	if took := of.cell.Latencies[tookOver]; len(took) > 0 {
		c.Latencies["replaced"], c.Latencies[overdue] = took, of.cell.Latencies[overdue]
	}
	longest(&c, "spent", "replaced", overdue)
	return c
}

// stalls counts the stalls that caused the losses at the given times. If a loss comes at most one
// TTL after the previous loss, both have the same cause.
func stalls(lost []int64, ttl time.Duration) int {
	slices.Sort(lost)
	n := 0
	for i, at := range lost {
		if i == 0 || at-lost[i-1] > int64(ttl) {
			n++
		}
	}
	return n
}
