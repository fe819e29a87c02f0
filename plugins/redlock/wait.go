package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// refreshEvery keeps a place in the queue alive during a long wait.
const refreshEvery = time.Second

// Wait queues r.Owner and returns when it should ask again; see driver.Waiter.
//
// Queues on several nodes would hand nodes to different waiters, and nobody
// would get a majority. So one node is the queue of a name: the first that
// votes, in an order that the name decides and every host knows. Releases
// learn from each node's vote whether it has a queue, so a host that takes
// another node for the first is woken too. When the node goes away its
// waiters are sent to ask, and meet again at the next one.
func (b *Backend) Wait(ctx context.Context, r driver.Request, most time.Duration) error {
	end := time.NewTimer(most)
	defer end.Stop()
	for {
		moved := b.moves()
		i := b.queueOf(r.Name)
		if i < 0 {
			return b.idle(ctx, r, moved, end.C)
		}
		n := b.nodes[i]
		b.contention.note(r.Name)
		place := n.wakeups.Enter(r.Owner)
		if !n.wakeups.Stands(place) {
			free, err := n.queueUp(ctx, r)
			if err != nil {
				return b.failed(ctx, r, err)
			}
			if free {
				b.contention.turn(r.Owner)
				return nil
			}
		}
		select {
		case <-place.Woken():
			b.contention.turn(r.Owner)
			return nil
		case <-end.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-b.closing:
			return b.failed(ctx, r, driver.ErrClosed)
		case <-moved:
			if b.queueOf(r.Name) != i {
				return nil
			}
		case <-time.After(refreshEvery):
		}
	}
}

// queueOf is the node where waiters of name queue, -1 when none votes.
func (b *Backend) queueOf(name string) int {
	h := uint32(2166136261) // FNV-1a, which is the same on every host
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	first := int(h % uint32(len(b.nodes)))
	for i := range b.nodes {
		if i = (first + i) % len(b.nodes); b.nodes[i].votes() {
			return i
		}
	}
	return -1
}

// idle waits for a node.
func (b *Backend) idle(ctx context.Context, r driver.Request, moved <-chan struct{}, end <-chan time.Time) error {
	select {
	case <-moved:
		return nil
	case <-end:
		return nil
	case <-b.closing:
		return b.failed(ctx, r, driver.ErrClosed)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Backend) failed(ctx context.Context, r driver.Request, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, driver.ErrDenied) {
		// The other nodes go on without this one, and asking them tells.
		err = fmt.Errorf("%w: %s", driver.ErrUnavailable, err.Error())
	}
	return fmt.Errorf("redlock: wait for %q: %w", r.Name, err)
}

// queueUp enters r.Owner into the queue of this node.
func (n *node) queueUp(ctx context.Context, r driver.Request) (free bool, err error) {
	epoch, err := n.wakeups.Ready(ctx)
	if err != nil {
		return false, err
	}
	sent := time.Now()
	if free, err = n.queues.Enqueue(ctx, r, n.wakeups.ID()); err == nil {
		n.wakeups.Entered(r.Owner, sent, epoch)
	}
	return free, err
}

// leaveQueues forgets what this host knows of owner's place in a queue, and
// reports whether it may have one.
func (b *Backend) leaveQueues(owner string) bool {
	if !b.contention.known.Load() {
		return false
	}
	for _, n := range b.nodes {
		n.wakeups.Leave(owner)
	}
	return true
}
