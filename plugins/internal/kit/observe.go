package kit

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Follow reads a lock's holder by calling the function look. It calls emit with the holder, and
// again after each change of the holder; see driver.Observer. It calls look again when look's
// channel is ready, when the interval (parameter every) has passed, or when the holder's TTL ends.
// If the interval is 0, only the channel matters. Follow returns when ctx ends or look fails.
func Follow(ctx context.Context, every time.Duration, look func() (driver.Holder, <-chan struct{}, error), emit func(driver.Holder)) error {
	var last driver.Holder
	var highest uint64
	for first := true; ; {
		h, told, err := look()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		// After a failover, for example, the store may show an earlier holder again. Follow ignores a
		// holder whose token is below a token that it has seen.
		past := h.Token != 0 && h.Token < highest
		if !past && (first || h.Owner != last.Owner || h.Token != last.Token || !bytes.Equal(h.Value, last.Value)) {
			emit(h)
			last, first, highest = h, false, max(highest, h.Token)
		}
		select {
		case <-told:
		case <-after(every, h):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// after returns a channel that fires when the interval has passed or the TTL of h has ended.
func after(every time.Duration, h driver.Holder) <-chan time.Time {
	switch {
	case every == 0:
		return nil
	case h.TTL > 0:
		every = min(every, h.TTL+time.Millisecond)
	}
	return time.After(every)
}

// Poller follows locks for a backend whose store reports no changes. At the interval Every, one
// call of Look reads all followed locks, which costs little more than reading one lock.
type Poller struct {
	Every time.Duration
	// Look reads the locks with these names. If its result lacks a name, that lock is not held.
	Look func(names []string) map[string]Seen
	// Go runs the function f in a goroutine, or returns false if the backend is closed.
	Go func(f func()) bool

	mu   sync.Mutex
	next *round    // the round that begins next; nil if no caller waits for a round
	last time.Time // when the last round began
}

// Seen is the result of reading a lock: its holder, or the error if the read failed.
type Seen struct {
	Holder driver.Holder
	Err    error
}

// round is one call of Look. It reads all locks that callers of Poller.Follow want to read.
type round struct {
	names map[string]struct{} // guarded by the Poller's mutex until the round begins
	done  chan struct{}
	seen  map[string]Seen
}

// Follow calls emit with the holder of the lock called name, and again after each change of the
// holder; see driver.Observer. It returns when ctx ends or Look fails.
func (p *Poller) Follow(ctx context.Context, name string, emit func(driver.Holder)) error {
	again := make(chan struct{})
	close(again) // the ask method pauses between rounds
	return Follow(ctx, 0, func() (driver.Holder, <-chan struct{}, error) {
		r := p.join(name)
		select {
		case <-r.done:
			s := r.seen[name]
			return s.Holder, again, s.Err
		case <-ctx.Done():
			return driver.Holder{}, nil, ctx.Err()
		}
	}, emit)
}

// join adds the lock called name to the next round. If no round is planned, it plans one.
func (p *Poller) join(name string) *round {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.next
	if r == nil {
		r = &round{names: map[string]struct{}{}, done: make(chan struct{})}
		pause := time.Until(p.last.Add(p.Every))
		if !p.Go(func() { p.ask(r, pause) }) {
			r.seen = map[string]Seen{name: {Err: driver.ErrClosed}}
			close(r.done)
			return r
		}
		p.next = r
	}
	r.names[name] = struct{}{}
	return r
}

func (p *Poller) ask(r *round, pause time.Duration) {
	time.Sleep(pause)
	p.mu.Lock()
	p.next, p.last = nil, time.Now()
	names := slices.Collect(maps.Keys(r.names))
	p.mu.Unlock()
	r.seen = p.Look(names)
	close(r.done)
}
