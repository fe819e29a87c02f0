package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// Renew prolongs a lease that a majority of nodes has; see driver.Lock.
func (b *Backend) Renew(ctx context.Context, r driver.Request) error {
	return b.do(ctx, b.renew(r))[0].Err
}

// renew returns an operation that sends one request to all nodes. Nodes without the lease vote no.
// After a majority has renewed the lease, these nodes get a copy, and vote for the next renewal.
//
// Note: do not copy the lease before the votes. A copy could turn a minority into a majority, so
// that a lost lease comes back with its old token.
func (b *Backend) renew(r driver.Request) *operation {
	o := b.operation("renew", r, kindRenew, func(o *operation) error {
		err := o.verdict()
		switch {
		case errors.Is(err, driver.ErrNotHeld):
			o.giveUp()
		case err == nil && o.late():
			return o.tooLate()
		case err == nil:
			o.repair()
		}
		return err
	})
	o.now.ms = kit.Millis(r.TTL)
	if err := b.checkTTL(r.TTL); err != nil {
		return o.refuse(err)
	}
	return o
}

// giveUp ends a lost lease on the nodes that did not vote against its renewal. These nodes may have
// just renewed the lease.
func (o *operation) giveUp() {
	b, key, r := o.b, o.now.key, o.r
	b.sending.Lock()
	delete(b.repairing, r.Owner)
	b.sending.Unlock()
	o.now.each(func(node int, v vote) {
		if v.no() {
			return
		}
		x := &quorumRequest{kind: kindUndo, key: key, owner: r.Owner, rest: "\n" + redisnode.LeaseID(r.Owner, r.Token)}
		x.each(b.wakeAt(r.Name))
		b.tell(node, x)
	})
}

// repair copies the lease to the nodes that lack it, in the background.
func (o *operation) repair() {
	source := slices.IndexFunc(o.now.result(), vote.yes)
	o.now.each(func(node int, v vote) {
		// Copy only to a node without the lock's key (-2), because elsewhere another owner has the lock.
		if v.answer == notHeld && v.ms == -2 {
			o.repairFrom(source, node, 0)
		}
	})
}

// repairFrom copies the lease from the node source to the node target, after a delay (parameter
// after). A release of the lease cancels the copy, which would otherwise stay on the node.
func (o *operation) repairFrom(source, target int, after time.Duration) {
	sent, r, b, key := o.sent, o.r, o.b, o.now.key
	b.sending.Lock()
	b.repairing[r.Owner]++
	b.sending.Unlock()
	look := &quorumRequest{kind: kindInspect, key: key}
	look.each(func(_ int, v vote) {
		b.sending.Lock()
		defer b.sending.Unlock()
		open := b.repairing[r.Owner]
		if b.repairing[r.Owner] = open - 1; open <= 1 {
			delete(b.repairing, r.Owner)
		}
		ttl := r.TTL - time.Since(sent) - b.opts.NodeTimeout
		h := v.holder(r.Name)
		if open == 0 || h.Owner != r.Owner || ttl <= 0 {
			return
		}
		b.tell(target, &quorumRequest{
			kind: kindRepair, key: key, owner: r.Owner, token: r.Token, ms: int64(ttl / time.Millisecond),
			rest: redisnode.ValueTail(h.Label, h.Value), grantee: r.Owner,
		})
	})
	time.AfterFunc(after, func() { b.tell(source, look) })
}
