package redlock

import (
	"bytes"
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// Proclaim replaces the published value on a majority; see driver.Elector. A
// node that cannot be reached keeps the old value, until the lease ends.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.do(ctx, &proclamation{b.call("proclaim", r)})[0].Err
}

type proclamation struct{ call }

func (p *proclamation) first() *ballot { return p.ask(kindProclaim, string(p.r.Value)) }

func (p *proclamation) next() *ballot {
	p.err = p.verdict()
	return nil
}

// observeEvery is how often an observer looks.
const observeEvery = 100 * time.Millisecond

// Observe follows the holder of name; see driver.Elector. It asks all nodes
// ten times a second, and when the holder's TTL runs out.
//
// Note: changes pushed by the nodes would have to be counted by majority too;
// one node's push says only that something is going on.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	var last driver.Holder
	var highest uint64
	for first := true; ; {
		h, err := b.Inspect(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		// Nodes that were out of reach may still show an older holder.
		past := h.Token != 0 && h.Token < highest
		if !past && (first || h.Owner != last.Owner || h.Token != last.Token || !bytes.Equal(h.Value, last.Value)) {
			emit(h)
			last, first, highest = h, false, max(highest, h.Token)
		}
		pause := observeEvery
		if h.TTL > 0 {
			pause = min(pause, h.TTL+time.Millisecond)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		case <-b.closing:
			return driver.ErrClosed
		}
	}
}

// Handover gives a lease to the next owner; see driver.Handover. It is one
// step on each node, and one round: nobody else can have been granted the
// lock since from was, so the token after from's is above every earlier one.
// Without a majority the outcome is unknown, because some nodes may have done
// it.
func (b *Backend) Handover(ctx context.Context, from, next driver.Request) (uint64, error) {
	if err := b.checkTTL("hand over", next); err != nil {
		return 0, err
	}
	t := &handover{call: b.call("hand over", from), to: next}
	res := b.do(ctx, t)[0]
	return res.Token, res.Err
}

type handover struct {
	call
	to      driver.Request
	undoing bool
	token   uint64
}

func (h *handover) first() *ballot {
	id := redisnode.LeaseID(h.to.Owner, 0)
	if h.b.fenced() {
		h.token = h.r.Token + 1
		id = redisnode.LeaseID(h.to.Owner, h.token)
	}
	x := h.ask(kindHandover, id+redisnode.ValueTail(h.to.Label, h.to.Value))
	x.ms, x.grantee = millis(h.to.TTL), h.to.Owner
	return x
}

func (h *handover) next() *ballot {
	if h.undoing {
		return nil
	}
	votes := h.now.result()
	if h.err = h.verdict(); count(votes, is(withdrawn)) >= h.b.quorum {
		h.err = driver.ErrWithdrawn // and from still has that majority
	}
	if h.err == nil {
		h.b.leaveQueues(h.to.Owner)
	}
	if h.err == nil || count(votes, vote.yes)+count(votes, is(missing)) == 0 {
		return nil
	}
	return h.undo(votes)
}

// undo takes the lock from the next owner again where it got it. With from
// still on a majority its next renewal heals those nodes.
func (h *handover) undo(votes []vote) *ballot {
	h.undoing = true
	key := h.now.key
	targets := make([]bool, len(votes))
	for i, v := range votes {
		targets[i] = v.yes() || v.answer == missing || v.answer == unknown
	}
	h.now = &ballot{kind: kindUndo, name: h.r.Name, key: key, owner: h.to.Owner, targets: targets}
	return h.now
}

func (h *handover) result(gaveUp error) driver.Result {
	res := h.call.result(gaveUp)
	if res.Err == nil {
		res.Token = h.token
	}
	return res
}
