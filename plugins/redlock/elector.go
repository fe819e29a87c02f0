package redlock

import (
	"bytes"
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
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
