package frame

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

var _ wire.Link = (*Link)(nil)

func (l *Link) grant(ctx context.Context, k kind, r *driver.Request) (uint64, error) {
	c, err := l.call(ctx, &message{kind: k, request: *r})
	if err != nil {
		return 0, err
	}
	token, err := c.token, c.err
	c.recycle()
	return token, err
}

func (l *Link) simple(ctx context.Context, k kind, r *driver.Request) error {
	_, err := l.grant(ctx, k, r)
	return err
}

// TryAcquire implements [driver.Lock].
func (l *Link) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	return l.grant(ctx, kindAcquire, &r)
}

// Renew implements [driver.Lock].
func (l *Link) Renew(ctx context.Context, r driver.Request) error {
	return l.simple(ctx, kindRenew, &r)
}

// Release implements [driver.Lock].
func (l *Link) Release(ctx context.Context, r driver.Request) error {
	return l.simple(ctx, kindRelease, &r)
}

// Withdraw implements [driver.Lock].
func (l *Link) Withdraw(ctx context.Context, name, owner string) error {
	return l.simple(ctx, kindWithdraw, &driver.Request{Name: name, Owner: owner})
}

// Proclaim implements [driver.Lock].
func (l *Link) Proclaim(ctx context.Context, r driver.Request) error {
	return l.simple(ctx, kindProclaim, &r)
}

// Inspect implements [driver.Lock].
func (l *Link) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	c, err := l.call(ctx, &message{kind: kindInspect, request: driver.Request{Name: name}})
	if err != nil {
		return driver.Holder{}, err
	}
	h, err := c.holder, c.err
	c.recycle()
	return h, err
}

// Wait implements [driver.Waiter].
func (l *Link) Wait(ctx context.Context, r driver.Request, max time.Duration) (driver.Grant, error) {
	began := time.Now() // a little before the start of the plugin's Wait, from which a.waited counts
	c, err := l.call(ctx, &message{kind: kindWait, request: r, max: max})
	if err != nil {
		return driver.Grant{}, wire.Ended(ctx, err)
	}
	a := c.answer
	c.recycle()
	switch {
	case a.err != nil && ctx.Err() != nil: // return this instead of the plugin's error for a cancelled Wait
		return driver.Grant{}, ctx.Err()
	case a.err != nil || a.token == 0:
		return driver.Grant{}, a.err
	}
	return driver.Grant{Token: a.token, Sent: began.Add(a.waited), For: a.span}, nil
}

// Batch implements [driver.Batcher]. It splits a batch that is too large for
// one frame, and sends each part after the answer to the previous part, so
// that operations on one name keep their order.
func (l *Link) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	results := make([]driver.Result, len(ops))
	for from := 0; from < len(ops); {
		if err := check(&ops[from].Request); err != nil {
			results[from].Err = err
			from++
			continue
		}
		n := fits(ops[from:])
		l.batch(ctx, ops[from:from+n], results[from:])
		from += n
	}
	return results
}

// fits returns the number of operations at the start of ops that fit into one frame together. A
// single operation always fits.
func fits(ops []driver.Op) int {
	size := 0
	for n := range ops {
		r := &ops[n].Request
		size += len(r.Name) + len(r.Owner) + len(r.Label) + len(r.Value)
		if n > 0 && (n == maxBatchOps || size > maxBatch || check(r) != nil) {
			return n
		}
	}
	return len(ops)
}

func (l *Link) batch(ctx context.Context, ops []driver.Op, results []driver.Result) {
	c, err := l.call(ctx, &message{kind: kindBatch, ops: ops})
	if err == nil {
		copy(results, c.results)
		err = c.err
		c.recycle()
	}
	if err != nil {
		for i := range ops {
			results[i].Err = err
		}
	}
}
