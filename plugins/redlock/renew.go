package redlock

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/millis"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// Renew prolongs a lease that a majority still holds; see driver.Lock.
func (b *Backend) Renew(ctx context.Context, r driver.Request) error {
	if err := b.checkTTL("renew", r); err != nil {
		return err
	}
	return b.do(ctx, b.renewal(r))[0].Err
}

// renewal is one round. Nodes that miss the lease do not count; once a majority
// has renewed it they get it back, and count from the next round on.
//
// Note: healing them first would make a majority out of a minority, and bring
// back a lease that was lost, with its old token.
type renewal struct{ call }

func (b *Backend) renewal(r driver.Request) *renewal {
	return &renewal{call: b.call("renew", r)}
}

func (n *renewal) first() *ballot {
	x := n.ask(kindRenew, "")
	x.ms = millis.Count(n.r.TTL)
	return x
}

func (n *renewal) next() *ballot {
	switch n.err = n.verdict(); {
	case n.err != nil:
	case n.late():
		n.err = n.tooLate()
	default:
		n.heal()
	}
	return nil
}

// heal brings the lease to the nodes that miss it, in the background.
func (n *renewal) heal() {
	votes := n.now.result()
	source := -1
	for i, v := range votes {
		if v.yes() {
			source = i
			break
		}
	}
	n.now.each(func(node int, v vote) {
		// Where somebody else has the lock nothing can be done.
		if v.answer == notHeld && v.ms == -2 {
			n.healFrom(source, node)
		}
	})
}

// healFrom copies the lease from one node to another. A release that is sent
// meanwhile calls that off: the copy would come after it, and stay.
func (n *renewal) healFrom(source, target int) {
	sent, r, b, key := n.sent, n.r, n.b, n.now.key
	b.sending.Lock()
	b.healing[r.Owner]++
	b.sending.Unlock()
	look := &ballot{kind: kindInspect, name: r.Name, key: key, targets: make([]bool, len(b.nodes))}
	look.targets[source] = true
	look.each(func(_ int, v vote) {
		b.sending.Lock()
		defer b.sending.Unlock()
		open := b.healing[r.Owner]
		if open <= 1 {
			delete(b.healing, r.Owner)
		} else {
			b.healing[r.Owner] = open - 1
		}
		ttl := r.TTL - time.Since(sent) - b.opts.NodeTimeout
		h := redisnode.ParseVote(r.Name, v.raw, v.ms, 0)
		if open == 0 || v.answer != done || h.Owner != r.Owner || ttl <= 0 {
			return
		}
		b.tell(target, &ballot{
			kind: kindHeal, name: r.Name, key: key, owner: r.Owner, token: r.Token, ms: int64(ttl / time.Millisecond),
			rest: redisnode.ValueTail(h.Label, h.Value), grantee: r.Owner,
		})
	})
	b.tell(source, look)
}
