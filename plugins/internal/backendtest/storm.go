package backendtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// judge records which owner believes that it holds the lock, and when this owner's lease ends.
type judge struct {
	t      *testing.T
	mu     sync.Mutex
	holder driver.Request
	until  time.Time
	last   uint64
	grants int
	pushed int
}

// begin records that r.Owner holds the lock until the given time. It fails the test if another
// owner still believes that it holds the lock, or if r.Token is not above all earlier tokens.
func (j *judge) begin(r driver.Request, until time.Time, pushed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	if !until.After(now) {
		return // the holder learned of the grant too late
	}
	if j.until.After(now) {
		j.t.Errorf("%s has token %d, and %s believes to hold token %d for another %v", r.Owner, r.Token, j.holder.Owner, j.holder.Token, time.Until(j.until))
	}
	if r.Token <= j.last {
		j.t.Errorf("token %d of %s comes after token %d", r.Token, r.Owner, j.last)
	}
	j.holder, j.until, j.last = r, until, r.Token
	j.grants++
	if pushed {
		j.pushed++
	}
}

func (j *judge) set(r driver.Request, until time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holder.Owner == r.Owner {
		j.until = until
	}
}

// Storm lets 32 simulated processes compete for one lock, each with a backend from the function
// open. Each process ends without a release at a random moment, and a new process replaces it. No
// two leases may overlap, and tokens must rise. The lease of an ended process counts until its
// deadline, because a host that is cut off from the store uses its lease until then.
func Storm(t *testing.T, open func() (driver.Backend, error), lasting time.Duration, ttl func() time.Duration) {
	j := &judge{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var number, ended atomic.Int64
	time.AfterFunc(lasting, cancel)
	var work sync.WaitGroup
	for range 32 {
		work.Go(func() {
			for ctx.Err() == nil {
				b, err := open()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = b.Inspect(ctx, "a") // connects before the short life of the process begins
				life, die := context.WithTimeout(ctx, 50*time.Millisecond+rand.N(8*b.Properties().FirstSpan))
				for life.Err() == nil {
					r := Request("a", fmt.Sprint("o", number.Add(1)))
					r.TTL = ttl()
					stormCycle(life, b, j, r)
				}
				die()
				ended.Add(1)
				closeNow(t, b)
			}
		})
	}
	work.Wait()
	t.Logf("%d grants, %d of them by a push, %d processes ended", j.grants, j.pushed, ended.Load())
	if j.pushed == 0 || ended.Load() == 0 {
		t.Error("nothing went on")
	}
	b, err := open()
	Must(t, err)
	defer closeNow(t, b)
	Eventually(t, "the lock is free in the end", func() bool {
		_, err := b.TryAcquire(t.Context(), Request("a", "last"))
		return err == nil
	})
}

func stormCycle(life context.Context, b driver.Backend, j *judge, r driver.Request) {
	var until time.Time
	pushed := false
	for r.Token == 0 {
		sent := time.Now()
		token, err := b.TryAcquire(life, r)
		if r.Token, until = token, sent.Add(r.TTL); err == nil {
			break
		}
		g, err := driver.WaiterOf(b).Wait(life, r, 200*time.Millisecond)
		if r.Token, until, pushed = g.Token, g.Sent.Add(g.For), true; life.Err() != nil {
			return // the process ends without a withdrawal
		}
		if err != nil {
			<-time.After(time.Millisecond)
		}
	}
	j.begin(r, until, pushed)
	if sent := time.Now(); rand.N(4) > 0 && b.Renew(life, r) == nil {
		j.set(r, sent.Add(r.TTL))
	}
	<-time.After(rand.N(3 * time.Millisecond))
	if life.Err() != nil {
		return
	}
	j.set(r, time.Now())
	_ = b.Release(life, r)
}

// closeNow closes the backend b without a release or withdrawal by its owners.
func closeNow(t *testing.T, b driver.Backend) {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}
