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

// Release ends a lease on a majority; see driver.Lock.
//
// A node that cannot be reached, or refuses to write, is told again until it
// obeys, while this backend is open. Until then the lease stays there for the
// rest of its TTL, on less than a majority. The last 10,000 such requests of
// each node are remembered. If this backend is closed earlier, and the release
// had no Keep, other hosts end the lease; see lookForOver.
func (b *Backend) Release(ctx context.Context, r driver.Request) error {
	return b.do(ctx, b.release(r))[0].Err
}

// Withdraw is confirmed once a majority refuses the owner. No majority can then
// grant to it, whatever is still on its way to the rest. With fewer nodes the
// error wraps driver.ErrUnavailable. See driver.Lock.
func (b *Backend) Withdraw(ctx context.Context, name, owner string) error {
	return b.do(ctx, b.withdraw(driver.Request{Name: name, Owner: owner}))[0].Err
}

// release is one round that ends a lease. The next waiter is woken after a
// majority is free.
func (b *Backend) release(r driver.Request) *operation {
	o := b.operation("release", r, kindRelease, "")
	// Rounded up, so that the lock is not free too early.
	o.now.ms, o.now.kept = kit.Millis(r.Keep), o.sent.Add(r.Keep)
	return o.decided(o.ended)
}

// withdraw is one round, in which a missing lease is no error.
func (b *Backend) withdraw(r driver.Request) *operation {
	b.leaveQueues(r.Owner)
	o := b.operation("withdraw", r, kindWithdraw, "")
	o.now.ms, o.now.kept = redisnode.TombstoneFor.Milliseconds(), o.sent
	return o.decided(func() error {
		err := o.ended()
		var lost *driver.NotHeldError
		if errors.As(err, &lost) {
			return nil
		}
		return err
	})
}

// ended is the result of the votes on the end of a lease. It is nil when a
// majority has confirmed that the lease is gone, or was not there, and it may
// have been there until now.
func (o *operation) ended() error {
	votes := o.now.result()
	switch no := count(votes, vote.no); {
	case no > len(votes)-o.b.quorum:
		return o.lost(votes)
	case count(votes, vote.yes)+no < o.b.quorum:
		return o.b.unavailable(votes)
	}
	wake := o.b.wakeAt(o.r.Name)
	o.now.each(func(node int, v vote) {
		wake(node, v)
		if o.now.kind == kindRelease && o.now.ms == 0 && v.absent() {
			o.b.remember(o.now, node)
		}
	})
	return nil
}

// remember leaves a tombstone for the owner of a released lease, on the nodes
// besides the one that missed the release. This process may end before it has
// told that node again; see lookForOver.
func (b *Backend) remember(x *quorumRequest, missed int) {
	if b.nodes[missed].owed() > maxRemembered {
		return
	}
	for i := range b.nodes {
		if i != missed {
			b.tell(i, b.retryOf(x))
		}
	}
}

// maxRemembered bounds the tombstones that a host leaves while a node is away.
const maxRemembered = 1000

// lookForOver ends released leases on nodes that missed the release. Such a
// node has the lock for an owner with a tombstone elsewhere. With another node
// out of reach it would deny everyone a majority for the rest of the TTL.
func (b *Backend) lookForOver(name string, votes []vote) {
	if !slices.ContainsFunc(votes, vote.absent) {
		return
	}
	for owner, hs := range holders(name, votes) {
		if len(hs) >= b.quorum || hs[0].Token == 0 {
			continue
		}
		key := b.keys.Lock(name)
		x := &quorumRequest{kind: kindOver, key: key, owner: owner}
		x.each(func(_ int, over vote) {
			for i, v := range votes {
				if over.yes() && v.holder(name).Owner == owner {
					b.tell(i, b.retryOf(&quorumRequest{kind: kindRelease, key: key, owner: owner}))
				}
			}
		})
		_ = b.send(x) // it fails only after Close
	}
}

// wakeAt wakes the first waiter in the queue of a node that has freed name.
func (b *Backend) wakeAt(name string) func(node int, v vote) {
	return func(node int, v vote) {
		if v.answer == freed {
			b.contention.note(name)
			b.tell(node, &quorumRequest{kind: kindWake, key: b.keys.Lock(name)})
		}
	}
}

// tell has one node do something, without waiting for it.
func (b *Backend) tell(node int, x *quorumRequest) {
	x.open(len(b.nodes))
	b.nodes[node].enqueue(x)
}

// retryOf returns the request for a node that x did not reach. An ended owner
// gets a tombstone, because its grant may arrive later. An owner that was only
// refused may ask again, so the undo concerns that one attempt. A release with
// Keep stays one, for the rest of the Keep.
func (b *Backend) retryOf(x *quorumRequest) *quorumRequest {
	y := &quorumRequest{
		kind: x.kind, key: x.key, owner: x.owner, token: x.token, ms: x.ms, rest: x.rest, until: x.until, kept: x.kept,
	}
	if y.until.IsZero() {
		// By then both the lease and any late request for it are over.
		y.until = time.Now().Add(max(redisnode.TombstoneFor, b.opts.MaxTTL))
	}
	switch left := time.Until(x.kept); {
	case x.kind != kindRelease:
	case left > 0:
		y.ms = kit.Millis(left)
	default:
		y.kind, y.ms = kindUndo, redisnode.TombstoneFor.Milliseconds()
	}
	y.open(len(b.nodes))
	return y
}

// Break ends a lease by its token; see driver.Admin. It needs a majority, and
// nodes that miss it are told again.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	o := b.operation("break", driver.Request{Name: name, Token: token}, kindBreak, "")
	return b.do(ctx, o.decided(o.ended))[0].Err
}
