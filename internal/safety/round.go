package safety

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/host"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// The numbers of the two hosts in what is recorded.
const (
	holderHost = 0
	rivalHost  = 1
)

const (
	// startTimeout bounds the start of a host, openTimeout its first grants.
	startTimeout = 30 * time.Second
	openTimeout  = 30 * time.Second
	// tryFor is how long the holder tries to get the second half of its locks:
	// a fault may have made sure that it does not.
	tryFor = time.Second
	// queueing is how long the rival has to enter its queues.
	queueing = 200 * time.Millisecond
	// recovery is how long after the fault the rival may need until it has every
	// lock, beside a TTL.
	recovery = 20 * time.Second
	// givingBack is how far into an outage the holder gives locks back.
	givingBack = 300 * time.Millisecond
	// aftermath is how long both go on when the rival has every lock: late writes
	// come in it.
	aftermath = 400 * time.Millisecond
	// lateness is what a holder that goes on has for what it was about to do.
	lateness = 100 * time.Millisecond
)

// cell is one fault on one backend, with everything that its rounds share.
type cell struct {
	*runner
	backend       Backend
	fault         fault.Fault
	ttl           time.Duration
	environment   *servers.Environment
	holder, rival *host.Process
	prefix        string // of the locks of this round
}

func (c *cell) rounds(ctx context.Context, template record.Round) error {
	for n := range c.plan.Rounds {
		round := template
		round.Round = n + 1
		failed := c.play(ctx, &round)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := c.sink.Round(round); err != nil {
			return err
		}
		if failed != nil {
			// What a fault has left behind must not judge the next round.
			return nil
		}
	}
	return nil
}

// play goes through one round. What fails stands in the round, too.
func (c *cell) play(ctx context.Context, r *record.Round) error {
	r.Names, r.TTLms = Names, c.ttl.Milliseconds()
	err := c.ready(ctx, r.Round > 1)
	if err == nil {
		err = c.round(ctx, r)
	}
	if err != nil {
		r.Failure = err.Error()
	}
	return err
}

// alone reports whether one process is both hosts: the store has no room for two.
func (c *cell) alone() bool { return kinds.Of(c.backend.Name).Lacks[servers.CapRival] != "" }

// ready starts the hosts that do not live, and brings servers that were used
// back to where they began.
func (c *cell) ready(ctx context.Context, used bool) (err error) {
	if used {
		if err := c.environment.Again(ctx); err != nil {
			return err
		}
	}
	if c.holder == nil || !c.holder.Alive() {
		if c.holder, err = c.start(ctx, holderHost, c.environment.Setup.HolderPaths, c.fault.Config); err != nil {
			return err
		}
	}
	if c.alone() {
		c.rival = c.holder
	} else if c.rival == nil {
		c.rival, err = c.start(ctx, rivalHost, c.environment.Setup.RivalPaths, c.fault.Config)
	}
	return err
}

// start starts a host that uses the given paths, or none.
func (c *cell) start(ctx context.Context, number int, paths []*inject.Proxy, more driver.Config) (*host.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cfg := driver.Config{}
	for _, part := range []driver.Config{c.backend.Config, c.environment.ConfigOf(paths), more} {
		maps.Copy(cfg, part)
	}
	return host.Start(ctx, host.Spec{
		Backend: c.backend.Name, Path: c.backend.Path, NoMTLS: c.backend.NoMTLS, Host: number,
		Config: cfg, Resources: c.resources, TempDir: c.dir, Program: c.backend.HostProgram,
	})
}

// round does what the package comment says, once.
func (c *cell) round(ctx context.Context, r *record.Round) (err error) {
	c.holder.Forget()
	c.rival.Forget()
	defer func() { c.collect(r) }()
	c.prefix = fmt.Sprintf("safety-%x-", c.random.Uint64())
	setup := c.setup()
	defer func() {
		// Whatever happened, nothing of the fault stays.
		err = errors.Join(err, setup.EndBackground())
	}()
	if err := c.hold(ctx); err != nil {
		return err
	}
	seen := c.holder.Seen()
	r.Hits = seen.Held() + len(seen.Failed())
	first := proc.Now()
	if !c.fault.RivalAsksLate {
		if err := c.want(); err != nil {
			return err
		}
		proc.Sleep(ctx, queueing)
	}
	proc.Sleep(ctx, time.Duration(c.random.Int64N(int64(c.ttl/3)))) // any moment of the renewal
	r.InjectedNs = proc.Now()
	c.giveBack(ctx)
	if err := do(ctx, c.fault.Inject, setup); err != nil {
		return errors.Join(fmt.Errorf("inject: %w", err), do(ctx, c.fault.Heal, setup))
	}
	if c.fault.RestoresService && c.fault.Heal == nil {
		r.BackNs = proc.Now()
	}
	if slices.Contains(c.fault.Produces, claim.HostStopped) { // until it is healed
		r.Halts = append(r.Halts, record.Halt{Host: holderHost, Why: record.HaltFrozen, From: r.InjectedNs})
	}
	if c.fault.RivalAsksLate {
		if err := c.want(); err != nil {
			return err
		}
	}
	return c.outcome(ctx, r, first)
}

// hold lets the holder acquire all locks, the second half of them prepared by
// the fault.
func (c *cell) hold(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	half := Names / 2
	if err := c.holder.Acquire(c.prefix, 0, half, c.ttl, openTimeout); err != nil {
		return err
	}
	if err := c.holder.Await(bounded, func(s host.Seen) bool { return s.Held() == half }); err != nil {
		return fmt.Errorf("the holder gets its locks: %w, %v", err, c.holder.Seen().Failed())
	}
	if err := do(ctx, c.fault.Prepare, c.setup()); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	timeout := openTimeout
	if c.fault.Prepare != nil {
		timeout = tryFor
	}
	if err := c.holder.Acquire(c.prefix, half, Names-half, c.ttl, timeout); err != nil {
		return err
	}
	err := c.holder.Await(bounded, func(s host.Seen) bool { return len(s.Leases)+len(s.Failed()) >= Names })
	if err != nil {
		return fmt.Errorf("the holder gets the rest of its locks: %w, %v", err, c.holder.Seen().Failed())
	}
	return nil
}

// giveBack lets the holder release the second half of its locks in an outage
// after which the store must serve.
func (c *cell) giveBack(ctx context.Context) {
	if !c.fault.RestoresService {
		return
	}
	c.environment.Setup.Later("give back", givingBack, func() error {
		if err := c.holder.ReleaseFrom(ctx, Names/2); err != nil {
			return fmt.Errorf("the holder gives half of its locks back: %w", err)
		}
		return nil
	})
}

// want lets the rival wait for all locks.
func (c *cell) want() error {
	return c.rival.Acquire(c.prefix, 0, Names, c.ttl, 2*(c.ttl+recovery))
}

// outcome waits for what the fault does, ends it, and lets both come to an
// end. The rival's leases are those asked for since first.
func (c *cell) outcome(ctx context.Context, r *record.Round, first int64) error {
	has := func(s host.Seen) bool {
		n := 0
		for _, l := range s.Leases {
			if l.AskedNs >= first {
				n++
			}
		}
		return n >= Names
	}
	acts := max(c.fault.Acts, time.Duration(c.fault.ActsTTLs*float64(c.ttl)))
	bound := acts
	if acts == 0 {
		bound = c.ttl + recovery
	}
	bounded, cancel := context.WithTimeout(ctx, bound)
	err := c.rival.Await(bounded, has)
	cancel()
	switch {
	case err == nil && acts == 0:
		proc.Sleep(ctx, aftermath) // the rival raises its guards before the holder goes on
	case err == nil:
		proc.Sleep(ctx, c.ttl/2) // the holder, which may believe that it has them too, renews
	}
	if err := do(ctx, c.fault.Heal, c.setup()); err != nil {
		return fmt.Errorf("heal: %w", err)
	}
	r.HealedNs = proc.Now()
	if c.fault.RestoresService && c.fault.Heal != nil {
		r.BackNs = r.HealedNs
	}
	if n := len(r.Halts); n > 0 {
		r.Halts[n-1].To = r.HealedNs
	}
	if err := c.environment.Setup.EndBackground(); err != nil {
		return fmt.Errorf("heal: %w", err)
	}
	if err == nil {
		proc.Sleep(ctx, lateness) // the rival renews soon, and would learn of a lost lock
	} else {
		proc.Sleep(ctx, aftermath)
	}
	return c.finish(ctx, has)
}

// finish lets the rival have every lock and the holder want them again, so
// that a lock which the holder has broken is found, and ends the round.
func (c *cell) finish(ctx context.Context, has func(host.Seen) bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.ttl+recovery)
	defer cancel()
	both := !c.alone() && c.holder.Alive()
	if both {
		if err := c.holder.Release(ctx); err != nil {
			return fmt.Errorf("the holder releases: %w", err)
		}
	}
	if err := c.rival.Await(ctx, has); err != nil && !c.alone() {
		return fmt.Errorf("the rival gets every lock: %w, %v", err, c.rival.Seen().Failed())
	}
	if both {
		if err := c.holder.Acquire(c.prefix, 0, Names, c.ttl, recovery); err != nil {
			return err
		}
	}
	proc.Sleep(ctx, aftermath)
	if err := c.rival.Release(ctx); err != nil {
		return fmt.Errorf("the rival releases: %w", err)
	}
	if both {
		if err := c.holder.Release(ctx); err != nil {
			return fmt.Errorf("the holder releases what it has waited for: %w", err)
		}
	}
	return nil
}

// collect gathers what both have seen. A process that the fault has killed
// learns of nothing more.
func (c *cell) collect(r *record.Round) {
	processes := []*host.Process{c.holder}
	if !c.alone() {
		processes = append(processes, c.rival)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for i, p := range processes {
		if !p.Alive() {
			_ = p.Close(ctx) // returns when all that it told is read
		}
		s := p.Seen()
		r.Leases = append(r.Leases, s.Leases...)
		r.Writes = append(r.Writes, s.Writes...)
		r.Halts = append(r.Halts, s.Halts...)
		if !p.Alive() {
			r.Halts = append(r.Halts, record.Halt{Host: i, Why: record.HaltKilled, From: r.InjectedNs})
		}
	}
	r.Shift(-c.began)
	slices.SortStableFunc(r.Leases, func(a, b record.Lease) int { return int(a.GrantedNs - b.GrantedNs) })
}

// end ends both hosts on a budget of its own.
func (c *cell) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	for _, p := range []*host.Process{c.holder, c.rival} {
		if p == nil {
			continue
		}
		if p.Alive() {
			_ = inject.Resume(p.Pid()) // a failed round may have left it frozen
		}
		if err := p.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return nil
}

// setup is what the fault may break.
func (c *cell) setup() *fault.Setup {
	return &fault.Setup{Setup: &c.environment.Setup, Holder: c.holder}
}

func do(ctx context.Context, step func(context.Context, *fault.Setup) error, s *fault.Setup) error {
	if step == nil {
		return nil
	}
	return step(ctx, s)
}
