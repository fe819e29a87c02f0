package drivertest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func handoverCases() []Case {
	return []Case{
		{
			Name: "K5 a host that hands a lock over lets others have their turn",
			Explain: `Handing the lock over inside a host is cheap, and starves the others: after 8 of them and 10 ms the lock is released
in the store, and a host that waits there gets it.`,
			Excuse: needsCapability(driver.CapWaiter),
			Run:    othersTurn,
		},
	}
}

// handed returns a lease that was handed over to inside the host of c, from
// one that was just acquired.
func (c *client) handed(t T, name string, o core.LockOptions) held {
	t.Helper()
	return c.handOver(t, name, o, c.mustTry(t, name, o))
}

// handOver releases l while its host wants the lock, and returns the lease that
// follows it.
func (c *client) handOver(t T, name string, o core.LockOptions, l held) held {
	t.Helper()
	next := c.start(t, name, o)
	mustRelease(t, l)
	return next.granted(t, 10*time.Second)
}

// othersTurn counts in a host that never leaves the lock alone. Two turns are
// let pass: the other host may miss one on a busy machine. How long one turn
// is, is a test of package core.
func othersTurn(t T, h *Harness) {
	const held = 5 * time.Millisecond
	cs := h.clients(t, 2)
	l := cs[0].mustTry(t, "jobs", h.lasting())
	other := cs[1].start(t, "jobs", h.lasting())
	var grants atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			// A backend that grants to everybody would keep this up for ever.
			for ctx.Err() == nil && grants.Load() < 1000 {
				mine, err := cs[0].acquire(ctx, t, "jobs", h.lasting())
				if err != nil {
					return
				}
				grants.Add(1)
				pause(t, held)
				_ = mine.Release(context.WithoutCancel(ctx))
			}
		})
	}
	eventually(t, 5*time.Second, "another goroutine of the host waits", func() bool { return cs[0].saw(core.EventWaiting, "jobs") > 0 })
	// An Acquire has announced that it waits before the store has heard of it.
	eventually(t, 5*time.Second, "the other host stands in the store's queue", func() bool {
		return inspect(t, cs[0].b, "jobs").Waiters != 0
	})
	mustRelease(t, l)
	eventually(t, 10*time.Second, "the other host gets the lock", other.ended)
	// Sampled after the grant, at which the host's next Acquire can only wait.
	if n := grants.Load(); n > 2*9 {
		t.Errorf("the lock was granted %d times in one host while another waited", n)
	}
	cancel()
	wg.Wait()
}
