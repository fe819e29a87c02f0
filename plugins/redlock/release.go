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
// If a node is unreachable or refuses writes, the backend sends the release to it again until the
// node confirms the release or the backend closes. Until then the lease stays on this node, at most
// for the rest of its TTL, but the lock is free on a majority. For each node, the backend keeps the
// last 10,000 missed requests that end a lease or an attempt. If the backend closes before this
// confirmation and r.Keep is zero, other hosts end the lease; see lookForOver.
func (b *Backend) Release(ctx context.Context, r driver.Request) error {
	return b.do(ctx, b.release(r))[0].Err
}

// Withdraw makes the nodes refuse an owner, and returns nil when a majority has confirmed that.
// After that, no majority can grant the owner the lock, even if the owner's requests reach nodes
// later. If fewer nodes confirm, the error wraps driver.ErrUnavailable. See driver.Lock.
func (b *Backend) Withdraw(ctx context.Context, name, owner string) error {
	return b.do(ctx, b.withdraw(driver.Request{Name: name, Owner: owner}))[0].Err
}

// release returns an operation that ends a lease by one request to all nodes. The operation wakes
// the next waiter when the lock is free on a majority.
func (b *Backend) release(r driver.Request) *operation {
	o := b.operation("release", r, kindRelease, (*operation).ended)
	// Keep is rounded up to milliseconds, so that the lock does not become free early.
	o.now.ms, o.now.kept = kit.Millis(r.Keep), o.sent.Add(r.Keep)
	return o
}

// withdraw returns an operation that sends one request to all nodes. A missing lease is no error.
func (b *Backend) withdraw(r driver.Request) *operation {
	b.leaveQueues(r.Owner)
	o := b.operation("withdraw", r, kindWithdraw, func(o *operation) error {
		if err := o.ended(); !errors.Is(err, driver.ErrNotHeld) {
			return err
		}
		return nil
	})
	o.now.ms, o.now.kept = redisnode.TombstoneFor.Milliseconds(), o.sent
	return o
}

// ended returns the verdict on a request that ends a lease. Without an error, it wakes waiters and
// leaves tombstones for nodes that missed a release.
func (o *operation) ended() error {
	if err := o.verdict(); err != nil {
		return err
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

// remember puts a tombstone for the owner of the release x on all nodes except the node with index
// missed, which did not get x. If this process ends before that node gets x, other hosts find the
// tombstone and end the lease on the node; see lookForOver.
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

// maxRemembered limits the missed requests of one node for which func remember puts tombstones.
const maxRemembered = 1000

// lookForOver ends released leases on nodes that missed the release. Such a node shows a holder
// that has a tombstone on another node. Without lookForOver, such a node and an unreachable node
// could keep every owner from a majority until the lease expires.
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
		_ = b.send(x) // send fails only after Close
	}
}

// wakeAt returns a function that wakes the first waiter in a node's queue, if the node's vote v
// says that the queue has a waiter for the lock.
func (b *Backend) wakeAt(name string) func(node int, v vote) {
	return func(node int, v vote) {
		if v.answer == freed {
			b.contention.note(name)
			b.tell(node, &quorumRequest{kind: kindWake, key: b.keys.Lock(name)})
		}
	}
}

// tell sends the request x to one node. It does not wait for the vote, which only x.follow gets.
func (b *Backend) tell(node int, x *quorumRequest) {
	x.encode()
	b.nodes[node].enqueue(x)
}

// retryOf returns the request that is sent, instead of x, to a node that missed x. A release
// becomes an undo with a tombstone, because a late acquire by the owner may still arrive. The undo
// of a failed attempt leaves no tombstone, because the owner may ask again. A release with Keep
// keeps the lock only for the rest of Keep.
func (b *Backend) retryOf(x *quorumRequest) *quorumRequest {
	y := &quorumRequest{
		kind: x.kind, key: x.key, owner: x.owner, token: x.token, ms: x.ms, rest: x.rest, until: x.until, kept: x.kept,
	}
	if y.until.IsZero() {
		// After this time, the lease has ended, and no late request for it can arrive any more.
		y.until = time.Now().Add(max(redisnode.TombstoneFor, b.opts.MaxTTL))
	}
	switch left := time.Until(x.kept); {
	case x.kind != kindRelease:
	case left > 0:
		y.ms = kit.Millis(left)
	default:
		y.kind, y.ms = kindUndo, redisnode.TombstoneFor.Milliseconds()
	}
	y.encode()
	return y
}

// Break ends the lease of the lock called name if the lease has this token; see driver.Admin. It
// needs the votes of a majority. A node that misses the request gets it again later.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	r := driver.Request{Name: name, Token: token}
	return b.do(ctx, b.operation("break", r, kindBreak, (*operation).ended))[0].Err
}
