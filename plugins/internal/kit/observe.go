package kit

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Follow calls emit with the lock's holder, and again after each change; see driver.Observer. It
// gets the holder by calling look. It calls look again when the channel that look returned gets a
// signal or is closed, when the duration every has passed, and when the holder's TTL ends. If every
// is 0, Follow waits only for the channel. Follow returns when ctx ends or look fails.
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
		// The store may show an earlier holder again, for example after a failover to a replica, or if
		// nodes were out of reach. Follow ignores such a holder.
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

// after returns a channel that fires when Follow must read the lock even if no change was reported.
func after(every time.Duration, h driver.Holder) <-chan time.Time {
	switch {
	case every == 0:
		return nil
	case h.TTL > 0:
		every = min(every, h.TTL+time.Millisecond)
	}
	return time.After(every)
}

// Poller follows locks for a backend that is not told of changes. At the interval Every, one call
// of Look reads all followed locks, so that many locks cost little more than one lock.
type Poller struct {
	Every time.Duration
	// Look returns the holders of the locks with these names. A lock without an entry is not held.
	Look func(names []string) map[string]Seen
	// Go runs f in a goroutine, or returns false when the backend is closed.
	Go func(f func()) bool

	mu   sync.Mutex
	next *round    // the next round; nil when no follower waits for a round
	last time.Time // when the last round began
}

// Seen is the holder of a lock, or the error if the holder is unknown.
type Seen struct {
	Holder driver.Holder
	Err    error
}

// round is one call of Look, for all locks that followers want to read.
type round struct {
	names map[string]struct{} // guarded by the Poller's mutex until the round begins
	done  chan struct{}
	seen  map[string]Seen
}

// Follow calls emit with the holder of the lock name, and again after each
// change; see driver.Observer. It returns when ctx ends or Look fails.
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

// join adds the lock with the given name to the next call of Look, which it starts if necessary.
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
	names := make([]string, 0, len(r.names))
	for name := range r.names {
		names = append(names, name)
	}
	p.mu.Unlock()
	r.seen = p.Look(names)
	close(r.done)
}
