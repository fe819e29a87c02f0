package redisnode

import (
	"bytes"
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/wake"
)

// Observe follows the holder of name; see [Observe]. Changes that are made
// through this package, by any host, are pushed.
func (n *Node) Observe(ctx context.Context, name string, every time.Duration, emit func(driver.Holder)) error {
	told, stop := n.Wakeups.listen(ctx, n.opts.Keys.changeChannel(name))
	defer stop()
	inspect := func() (driver.Holder, error) { return n.inspectOne(ctx, name, "1") }
	return Observe(ctx, every, told, inspect, emit)
}

// Observe calls emit with the holder that inspect finds, and after each change;
// see driver.Elector. It looks when told is filled, once in every, and when the
// holder's TTL runs out.
func Observe(ctx context.Context, every time.Duration, told <-chan struct{},
	inspect func() (driver.Holder, error), emit func(driver.Holder),
) error {
	var last driver.Holder
	var highest uint64
	for first := true; ; {
		h, err := inspect()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		// A replica that became the master, or nodes that were out of reach, may
		// still show an older holder.
		past := h.Token != 0 && h.Token < highest
		if !past && (first || h.Owner != last.Owner || h.Token != last.Token || !bytes.Equal(h.Value, last.Value)) {
			emit(h)
			last, first, highest = h, false, max(highest, h.Token)
		}
		pause := every
		if h.TTL > 0 {
			pause = min(pause, h.TTL+time.Millisecond)
		}
		select {
		case <-told:
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listen has the returned channel filled whenever something is published on
// name, when it begins to, and when the connection breaks. The function ends it.
func (w *Wakeups) listen(ctx context.Context, name string) (<-chan struct{}, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start()
	listeners := w.changes[name]
	if listeners == nil {
		listeners = map[chan struct{}]struct{}{}
		w.changes[name] = listeners
		if w.pubsub != nil {
			// An error breaks the connection, and the next one subscribes again.
			_ = w.pubsub.Subscribe(ctx, name)
		}
	}
	l := make(chan struct{}, 1)
	listeners[l] = struct{}{}
	return l, func() { w.unlisten(context.WithoutCancel(ctx), name, l) }
}

func (w *Wakeups) unlisten(ctx context.Context, name string, l chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.changes[name], l)
	if len(w.changes[name]) > 0 {
		return
	}
	delete(w.changes, name)
	if w.pubsub != nil {
		_ = w.pubsub.Unsubscribe(ctx, name)
	}
}

// told wakes those who observe what name is about.
func (w *Wakeups) told(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.changes[name] {
		wake.Up(l)
	}
}
