package observe

import (
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Poller follows locks for a backend that is not told of changes. It asks once in
// Every about all of them, so that a hundred cost the store what one costs.
type Poller struct {
	Every time.Duration
	// Look returns what it sees of each of names. What is left out is not held.
	Look func(names []string) map[string]Seen
	// Go runs f in a goroutine, or returns false when the backend is closed.
	Go func(f func()) bool

	mu   sync.Mutex
	next *round    // that has not begun; nil when no follower waits for one
	last time.Time // when the one before it began
}

// Seen is who holds a lock, or why that cannot be seen.
type Seen struct {
	Holder driver.Holder
	Err    error
}

// round is one question.
type round struct {
	names map[string]struct{} // guarded by the Poller's mutex until it begins
	done  chan struct{}
	seen  map[string]Seen
}

// Follow calls emit with the holder of name, and after each change; see
// driver.Observer. It ends with ctx or an error of Look.
func (p *Poller) Follow(ctx context.Context, name string, emit func(driver.Holder)) error {
	again := make(chan struct{})
	close(again) // the next round is paced by itself
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

// join has the next round ask about name.
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

// ask asks what r is about, after a pause.
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
