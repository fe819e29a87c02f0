package serve

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

const (
	releaseBudget = time.Second
	releaseAtOnce = 32  // limit of simultaneous calls; without a Batcher, each releases one lock
	releaseBatch  = 256 // largest number of operations in one Batch
	releaseRetry  = 20 * time.Millisecond
)

// releaseAll renews the dead host's leases during the delay that the host asked for. Then, for at
// most releaseBudget, it releases them and withdraws owners without a lease, such as waiters.
func (p *process) releaseAll(t *tracker) {
	start := time.Now()
	count := t.refuse()
	t.keep(time.Now().Add(p.setup.Delay))
	ctx, cancel := context.WithTimeout(context.Background(), releaseBudget)
	defer cancel()
	if left := t.releaseAll(ctx); left > 0 {
		p.log.Warn("host died; some locks are free only after their TTL", "locks", count, "left", left)
		return
	}
	p.log.Info("host died; its locks are released", "locks", count, "took", time.Since(start))
}

// refuse makes the tracker refuse new requests, and returns the number of owners that the tracker
// knows. It sets each lease's expiry to zero, so that tracker.keep renews all leases, because the
// dead host's last renewals may have failed.
func (t *tracker) refuse() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
	for _, e := range t.entries {
		e.until = time.Time{}
	}
	return len(t.entries)
}

// keep renews the dead host's leases until the time in end. It skips a lease that expires after
// that time, and cannot revive a lease that has expired.
func (t *tracker) keep(end time.Time) {
	for time.Now().Before(end) {
		ops, pause := t.due(end)
		ctx, cancel := context.WithTimeout(context.Background(), 3*pause)
		sent := time.Now()
		t.each(ctx, ops, func(op driver.Op, err error) {
			switch {
			case err == nil:
				t.renewed(op.Owner, sent.Add(op.TTL))
			case errors.Is(err, driver.ErrNotHeld):
				t.forget(op.Owner)
			}
		})
		cancel()
		time.Sleep(min(pause, time.Until(end)))
	}
}

// due returns the renewals to send now, and the pause before the next call of due. A lease must be
// renewed when at most two thirds of its TTL are left, so that there is time for retries.
func (t *tracker) due(end time.Time) (ops []driver.Op, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	pause = end.Sub(now)
	for _, e := range t.entries {
		if !e.granted || !e.until.Before(end) {
			continue
		}
		pause = min(pause, e.ttl/9)
		if e.until.Sub(now) <= e.ttl*2/3 {
			r := driver.Request{Name: e.name, Owner: e.owner, Token: e.token, TTL: e.ttl}
			ops = append(ops, driver.Op{Kind: driver.OpRenew, Request: r})
		}
	}
	return ops, max(pause, time.Millisecond)
}

func (t *tracker) renewed(owner string, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[owner]; e != nil {
		e.until = until
	}
}

// releaseAll releases the leases of all owners and withdraws waiting owners, until no owner is left
// or ctx ends. It returns the number of owners left. After each attempt it lists the owners again,
// because an acquire of the dead host that is still under way may add a grant.
func (t *tracker) releaseAll(ctx context.Context) int {
	for {
		ops, _ := t.pending()
		t.each(ctx, ops, func(op driver.Op, err error) {
			if err == nil || errors.Is(err, driver.ErrNotHeld) {
				t.forget(op.Owner)
			}
		})
		rest, acquires := t.pending()
		left := max(len(rest), acquires)
		if left == 0 || ctx.Err() != nil {
			return left
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(releaseRetry, time.Millisecond*time.Duration(1+len(ops)))):
		}
	}
}

// pending returns the releases and withdrawals to send now, and the number of acquires under way.
// If such an acquire reaches the store after its owner's withdrawal, the store refuses it.
func (t *tracker) pending() (ops []driver.Op, acquires int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, e := range t.entries {
		op := driver.Op{Kind: driver.OpWithdraw, Request: driver.Request{Name: e.name, Owner: e.owner, Token: e.token}}
		if e.granted {
			op.Kind, op.Keep = driver.OpRelease, max(0, e.keepUntil.Sub(now))
		}
		ops = append(ops, op)
	}
	return ops, t.acquires
}

// each executes ops, which must not contain an acquire. It calls the function done with each
// operation and the operation's error. Several goroutines may call done at the same time.
func (t *tracker) each(ctx context.Context, ops []driver.Op, done func(driver.Op, error)) {
	batcher := driver.BatcherOf(t.Backend)
	do := func(part []driver.Op) []driver.Result {
		switch {
		case batcher != nil:
			return batcher.Batch(ctx, part)
		case part[0].Kind == driver.OpRenew:
			return []driver.Result{{Err: t.Backend.Renew(ctx, part[0].Request)}}
		case part[0].Kind == driver.OpWithdraw:
			return []driver.Result{{Err: t.Backend.Withdraw(ctx, part[0].Name, part[0].Owner)}}
		}
		return []driver.Result{{Err: t.Backend.Release(ctx, part[0].Request)}}
	}
	size := 1
	if batcher != nil {
		size = releaseBatch
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, releaseAtOnce)
	for part := range slices.Chunk(ops, size) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for i, result := range do(part) {
				done(part[i], result.Err)
			}
		})
	}
	wg.Wait()
}
