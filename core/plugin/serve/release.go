package serve

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Budget and shape of the release of a dead host's locks.
const (
	releaseBudget = time.Second
	releaseAtOnce = 32  // concurrent calls where the backend has no Batcher
	releaseBatch  = 256 // operations in one Batch
	releaseRetry  = 20 * time.Millisecond
)

// releaseAll gives back everything that the dead host held, waited for or was
// being granted, within releaseBudget.
func (p *process) releaseAll(t *tracker) {
	start := time.Now()
	count := t.refuse()
	if p.setup.Delay > 0 {
		time.Sleep(p.setup.Delay)
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseBudget)
	defer cancel()
	if left := t.releaseAll(ctx); left > 0 {
		p.log.Warn("host died; some locks are left to their TTL", "locks", count, "left", left)
		return
	}
	p.log.Info("host died; its locks are released", "locks", count, "took", time.Since(start))
}

// refuse refuses new requests from now on and says how many owners are known.
func (t *tracker) refuse() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
	return len(t.entries)
}

// releaseAll works until nothing is left or ctx ends, and says how many owners
// are left. Acquires in flight are cancelled with the host's connection; each
// turns into a grant or a withdrawal when it returns, so it looks again.
func (t *tracker) releaseAll(ctx context.Context) int {
	for {
		ops, acquires := t.pending()
		if len(ops) == 0 && acquires == 0 {
			return 0
		}
		done := t.releaseOps(ctx, ops)
		if ctx.Err() != nil {
			break
		}
		if done == len(ops) && acquires == 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(releaseRetry, time.Millisecond*time.Duration(1+len(ops)))):
		}
	}
	ops, acquires := t.pending()
	return max(len(ops), acquires)
}

// pending lists the releases and withdrawals to do now. An owner whose acquire
// is still in flight is withdrawn too: that puts a tombstone for the request on its way.
// Only what was granted is kept: without fencing that, and not the token, tells
// a lease from an attempt.
func (t *tracker) pending() (ops []driver.Op, acquires int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, e := range t.entries {
		r := driver.Request{Name: e.name, Owner: e.owner, Token: e.token}
		if e.granted && e.keepUntil.After(now) {
			r.Keep = e.keepUntil.Sub(now)
		}
		ops = append(ops, driver.Op{Kind: driver.OpRelease, Request: r})
	}
	return ops, t.acquires
}

// releaseOps does ops and says how many succeeded.
func (t *tracker) releaseOps(ctx context.Context, ops []driver.Op) int {
	batcher := driver.BatcherOf(t.Backend)
	do := func(part []driver.Op) []driver.Result {
		if batcher != nil {
			return batcher.Batch(ctx, part)
		}
		return []driver.Result{{Err: t.Backend.Release(ctx, part[0].Request)}}
	}
	size := 1
	if batcher != nil {
		size = releaseBatch
	}
	var wg sync.WaitGroup
	var done atomic.Int64
	slots := make(chan struct{}, releaseAtOnce)
	for part := range slices.Chunk(ops, size) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for i, result := range do(part) {
				if result.Err == nil || errors.Is(result.Err, driver.ErrNotHeld) {
					t.forget(part[i].Owner)
					done.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int(done.Load())
}
