package redisnode

import (
	"context"

	"github.com/lockbench/lockbench/plugins/internal/wake"
)

// channel is what those who observe one lock share.
type channel struct {
	listeners map[chan struct{}]struct{}
}

// Listen has the returned channel filled whenever something is published on
// name, when it begins to, and when the connection breaks. The function ends it.
func (w *Wakeups) Listen(ctx context.Context, name string) (<-chan struct{}, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start()
	c := w.changes[name]
	if c == nil {
		c = &channel{listeners: map[chan struct{}]struct{}{}}
		w.changes[name] = c
		if w.pubsub != nil {
			// An error breaks the connection, and the next one subscribes again.
			_ = w.pubsub.Subscribe(ctx, name)
		}
	}
	l := make(chan struct{}, 1)
	c.listeners[l] = struct{}{}
	return l, func() { w.unlisten(context.WithoutCancel(ctx), name, l) }
}

func (w *Wakeups) unlisten(ctx context.Context, name string, l chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.changes[name]
	delete(c.listeners, l)
	if len(c.listeners) > 0 {
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
	if c := w.changes[name]; c != nil {
		for l := range c.listeners {
			wake.Up(l)
		}
	}
}
