package redlock

import (
	"context"
	"errors"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/millis"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// Release ends a lease on a majority, or withdraws an owner; see driver.Lock.
//
// A node that cannot be reached is told as soon as it can be, for as long as
// this backend is open; until then a lease stands there for the rest of its
// TTL, on fewer nodes than a majority.
//
// A withdrawal is confirmed once a majority refuses the owner: then no
// majority can grant to it any more, whatever is still on its way to the rest.
// When fewer nodes confirm it, the error wraps driver.ErrUnavailable.
func (b *Backend) Release(ctx context.Context, r driver.Request) error {
	return b.do(ctx, b.ending(r))[0].Err
}

// ending is one round that releases a lease or withdraws an owner. The next
// waiter is woken after a majority is free.
type ending struct {
	call
	withdrawal bool // what is not there is no error
}

func (b *Backend) ending(r driver.Request) *ending {
	if r.Token == 0 {
		return &ending{b.call("withdraw", r), true}
	}
	return &ending{b.call("release", r), false}
}

func (e *ending) first() *ballot {
	x := e.ask(kindRelease, "")
	// Rounded up, so that the lock is not free too early.
	x.ms = millis.Count(e.r.Keep)
	if e.withdrawal {
		e.b.leaveQueues(e.r.Owner)
		if e.b.fenced() || !e.b.retired.end(e.r.Owner) {
			x.kind, x.ms = kindWithdraw, redisnode.TombstoneFor.Milliseconds()
		}
	}
	return x
}

func (e *ending) next() *ballot {
	e.err = e.over()
	var lost *driver.NotHeldError
	if e.withdrawal && errors.As(e.err, &lost) {
		e.err = nil
	}
	return nil
}

// over is what the votes on the end of a lease come to: nil when a majority
// has confirmed that it is not there any more, or was not, and it may have
// been there until now.
func (c *call) over() error {
	votes := c.now.result()
	switch no := count(votes, vote.no); {
	case no > len(votes)-c.b.quorum:
		return c.lost(votes)
	case count(votes, vote.yes)+no < c.b.quorum:
		return c.b.unavailable(votes)
	}
	c.now.each(c.b.wakeAt(c.r.Name))
	return nil
}

// wakeAt wakes the first in the queue of a node that has freed name there.
func (b *Backend) wakeAt(name string) func(node int, v vote) {
	return func(node int, v vote) {
		if v.answer == freed {
			b.contention.note(name)
			b.tell(node, &ballot{kind: kindWake, name: name, key: b.keys.Lock(name)})
		}
	}
}

// tell has one node do something, without waiting for it.
func (b *Backend) tell(node int, x *ballot) {
	x.open(len(b.nodes))
	b.nodes[node].enqueue(x)
}

// owed is what a node is told later that x did not reach. An owner that is
// done with gets a tombstone, because its grant may come after that; one that was
// only refused may ask again.
func (b *Backend) owed(x *ballot) *ballot {
	y := &ballot{kind: x.kind, name: x.name, key: x.key, owner: x.owner}
	switch x.kind {
	case kindRelease:
		y.kind, y.ms = kindUndo, redisnode.TombstoneFor.Milliseconds()
	case kindWithdraw:
		y.ms = x.ms
	}
	y.open(len(b.nodes))
	return y
}

// Break ends a lease by its token; see driver.Admin. It needs a majority.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	return b.do(ctx, &breaking{b.call("break", driver.Request{Name: name, Token: token})})[0].Err
}

type breaking struct{ call }

func (k *breaking) first() *ballot { return k.ask(kindBreak, "") }

func (k *breaking) next() *ballot {
	k.err = k.over()
	return nil
}
