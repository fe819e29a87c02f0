package safety

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/recorder"
)

const (
	// poolHostNumber is the number of the host that keeps many leases.
	poolHostNumber = 2
	// poolTTL is that of its leases: as long as that of the faults that a lease
	// must survive.
	poolTTL = 10 * time.Second
	// gatherFor is how long a pool may take until it is whole: a server
	// that votes and was restarted is let in again after a TTL.
	gatherFor = time.Minute
)

// startPool starts the third host, on paths of its own.
func (w *system) startPool(ctx context.Context) (err error) {
	for i := range w.soak.PoolSize {
		w.names = append(w.names, fmt.Sprint("pool-", i))
	}
	cfg := merged(w.backend.Config, w.environment.ConfigOf(nil))
	if cfg["node_timeout"] != "" {
		// As long as the TTL allows: that of the rounds is short for a busy machine.
		cfg["node_timeout"] = (poolTTL / 20).String()
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	w.poolHost, err = recorder.Start(ctx, recorder.Spec{
		Backend: w.backend.Name, Path: w.backend.Path, NoMTLS: w.backend.NoMTLS, Host: poolHostNumber,
		Config: cfg, Resources: w.resources, TempDir: w.dir,
	})
	return err
}

// keep lets the pool take its leases, and waits until it has all of them.
func (w *system) keep(ctx context.Context) error {
	if err := w.poolHost.Keep("pool-", w.soak.PoolSize, poolTTL); err != nil {
		return err
	}
	return w.gather(ctx)
}

// gather waits until the pool is whole.
func (w *system) gather(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gatherFor)
	defer cancel()
	if err := w.poolHost.AwaitPool(ctx, w.soak.PoolSize); err != nil {
		return fmt.Errorf("the pool gets its %d leases: %w, %v", w.soak.PoolSize, err, w.poolHost.Seen().Failed)
	}
	return nil
}

// leave lets the pool give everything back, and looks at its processes.
func (w *system) leave(ctx context.Context) error {
	releasing, cancel := context.WithTimeout(ctx, gatherFor)
	defer cancel()
	if err := w.poolHost.Release(releasing); err != nil {
		return fmt.Errorf("the pool releases: %w", err)
	}
	w.judgePool(false)
	return w.look(ctx, "pool", w.poolHost)
}

// mayLosePool reports whether a fault may cost a pool its leases: one that stops
// all servers from working. Proxies do not stand in its way.
func mayLosePool(f fault.Fault) bool {
	return !f.KeepsLeases && slices.ContainsFunc(f.Needs, func(p fault.Capability) bool {
		return p == fault.CapServers || p == fault.CapReadOnly || p == fault.CapExhaust
	})
}

// judgePool takes what the pool has told since the last call. Leases that
// were lost are false losses unless they are excused. It returns how many were lost.
func (w *system) judgePool(excused bool) string {
	c := w.poolHost.TakePool()
	w.poolHost.Forget()
	for i := range c.Attempts {
		a := &c.Attempts[i]
		for _, t := range []*int64{&a.Asked, &a.Answered, &a.Ended, &a.Done} {
			if *t > 0 {
				*t -= w.began
			}
		}
	}
	w.checker.Add(record.Section{
		Backend: w.backend.Name, Kind: record.KindPlugin, Fencing: w.backend.Fencing, Scenario: "soak", Names: w.names,
	}, c.Attempts)
	if len(c.Losses) == 0 {
		return "0"
	}
	first := c.Losses[0]
	lost := fmt.Sprintf("%d, the first after %v (%s)", len(c.Losses), time.Duration(first.At-w.began).Round(time.Millisecond), first.Cause)
	if !excused {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.found.FalseLosses = append(w.found.FalseLosses, fmt.Sprintf("the pool in round %d, %s: %s", w.found.Rounds+1, w.fault.Name, lost))
	}
	return lost
}

// concludePool adds the verdict on the pool.
func (w *system) concludePool() {
	v := w.checker.Verdict()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.Grants += v.Granted()
	for _, one := range v.Violations {
		w.found.Violations = append(w.found.Violations, one.String())
	}
}
