package etcd

import (
	"context"
	"sync"
	"time"
)

const (
	// quiet is how long nothing may come from the store before it is asked.
	quiet = time.Second
	// patience is how long that question may take before the store is down.
	patience = time.Second
	// downPause is between two questions to a store that is down.
	downPause = 200 * time.Millisecond
)

// health knows whether the store answers. Errors of requests are only a reason
// to ask it at once: what counts is a read through the consensus.
type health struct {
	b    *Backend
	wake chan struct{}

	mu    sync.Mutex
	heard time.Time // the last answer
	down  error     // why; nil when it is up
	since int       // number of changes between up and down
	told  map[chan struct{}]bool
}

func (h *health) init(b *Backend) {
	h.b, h.wake, h.told = b, make(chan struct{}, 1), map[chan struct{}]bool{}
}

// report is told of every answer and of every error that came instead.
func (h *health) report(err error) {
	if err != nil && !refused(err) {
		signal(h.wake)
		return
	}
	h.set(nil)
}

func (h *health) set(down error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if down == nil {
		h.heard = time.Now()
	}
	if (down == nil) == (h.down == nil) {
		return
	}
	h.down = down
	h.since++
	for c := range h.told {
		signal(c)
	}
}

// state returns the number of changes so far and the present cause.
func (h *health) state() (changes int, down error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.down
}

// follow makes changes signal c; asking is regular only while somebody follows.
func (h *health) follow(c chan struct{}, on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on {
		h.told[c] = true
		signal(h.wake)
	} else {
		delete(h.told, c)
	}
}

func (h *health) run() {
	for {
		select {
		case <-h.wake:
			h.probe()
		case <-time.After(h.pause()):
			if h.stale() {
				h.probe()
			}
		case <-h.b.ctx.Done():
			return
		}
	}
}

func (h *health) pause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.down != nil:
		return downPause
	case len(h.told) == 0:
		return time.Hour // follow wakes
	}
	return quiet
}

func (h *health) stale() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down != nil || len(h.told) > 0 && time.Since(h.heard) >= quiet
}

// probe asks the store. While it is down, grpc's own pauses between two
// attempts to connect, which grow to two minutes, are cut short.
func (h *health) probe() {
	ctx, cancel := context.WithTimeout(h.b.ctx, patience)
	defer cancel()
	err := h.b.members.ask(ctx)
	if h.b.ctx.Err() != nil {
		return
	}
	if err == nil {
		h.set(nil)
		return
	}
	h.set(h.b.wrap(err))
	h.b.hub.reset()
}

// overdue has the members compared, again and again, until the returned function
// is called: something should have been answered by then.
func (h *health) overdue() (stop func()) {
	if !h.b.members.several() {
		return func() {}
	}
	var (
		mu    sync.Mutex
		timer *time.Timer
	)
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(slowAfter, func() {
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			signal(h.wake)
			timer.Reset(slowAfter)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
		timer = nil
	}
}
