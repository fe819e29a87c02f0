package cas

import (
	"bytes"
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

const (
	// A record is read again after lookEvery, even if no change was reported. A store that is down
	// reports no changes, and the expiry of a lease changes no key.
	lookEvery = time.Second
	// lingerFor is the time for which a key stays watched after the last call of method follow for the
	// key has ended, because another call often comes soon.
	lingerFor = 5 * time.Second
)

// All calls of method follow for one key share one topic.
type topic struct {
	stop  func() // ends the watch; returned by Watcher.Watch
	users int    // calls of method follow; users and idle are guarded by the backend's mutex
	idle  *time.Timer

	mu   sync.Mutex
	next chan struct{} // closed at the next change
}

func (t *topic) changed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.next)
	t.next = make(chan struct{})
}

func (t *topic) change() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next
}

// The caller of close must hold the backend's mutex.
func (t *topic) close() {
	if t.idle != nil {
		t.idle.Stop()
	}
	t.stop()
}

// follow calls the function turn at once, after each change of the record, and when the pause
// returned by the last call of turn is over. It ends when turn returns an error or ctx ends. If ctx
// has ended, follow returns its error.
func (b *backend) follow(ctx context.Context, name string, turn func(ctx context.Context, changed bool) (pause time.Duration, err error)) error {
	inside, done, err := b.begin(ctx)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	defer done()
	t, err := b.join(keyOf(name))
	if err != nil {
		return cmp.Or(ctx.Err(), b.failed(inside, err, true))
	}
	defer b.leave(keyOf(name), t)
	for changed := false; ; {
		change := t.change() // taken before turn reads the record, so that no change is missed
		pause, err := turn(inside, changed)
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		select {
		case <-change:
			changed = true
		case <-time.After(pause):
			changed = false
		case <-inside.Done():
			return cmp.Or(ctx.Err(), b.named(driver.ErrClosed))
		}
	}
}

func (b *backend) join(key string) (*topic, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[key]
	if b.life.Err() != nil { // Close has already ended all watches
		return nil, driver.ErrClosed
	}
	if t == nil {
		t = &topic{next: make(chan struct{})}
		var err error
		if t.stop, err = b.watcher.Watch(key, t.changed); err != nil {
			return nil, err
		}
		b.topics[key] = t
	}
	t.users++
	return t, nil
}

func (b *backend) leave(key string, t *topic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.users--; t.users > 0 || b.life.Err() != nil {
		return
	}
	t.idle = time.AfterFunc(lingerFor, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if t.users == 0 && b.topics[key] == t {
			t.close()
			delete(b.topics, key)
		}
	})
}

// Observe never emits a token that is lower than an earlier one. It must compare tokens, because
// the store's new leader node may still show an older holder after a failover.
func (b *backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	var last driver.Holder
	var highest uint64
	first := true
	return b.follow(ctx, name, func(ctx context.Context, _ bool) (time.Duration, error) {
		h, err := b.Inspect(ctx, name)
		if err != nil {
			return 0, err
		}
		past := h.Token != 0 && h.Token < highest
		if !past && (first || h.Owner != last.Owner || h.Token != last.Token || !bytes.Equal(h.Value, last.Value)) {
			emit(h)
			first, last, highest = false, h, max(highest, h.Token)
		}
		if h.Held() {
			return min(lookEvery, h.TTL+time.Millisecond), nil
		}
		return lookEvery, nil
	})
}

// Notify does not read the record after a change, because the caller then asks for the lock anyway.
func (b *backend) Notify(ctx context.Context, name string, emit func()) error {
	first := true
	return b.follow(ctx, name, func(ctx context.Context, changed bool) (time.Duration, error) {
		if !changed {
			if _, _, err := b.read(ctx, name); err != nil {
				return 0, b.failed(ctx, err, true)
			}
		}
		if changed || first {
			emit()
		}
		first = false
		return lookEvery, nil
	})
}
