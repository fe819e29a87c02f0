package core

import (
	"context"
	"slices"
	"sync"
	"time"
)

// janitor goes on with clean-ups whose callers were told that they failed,
// until each is done, there can be nothing left to clean up, or the client
// closes. Close takes over what is pending then.
type janitor struct {
	c       *Client
	mu      sync.Mutex
	pending []*cleanup
	running bool
}

// cleanup is one of them.
type cleanup struct {
	name  string                          // of the lock
	until instant                         // what it cleans up is over then
	try   func(ctx context.Context) error // tries once, and returns nil when there is nothing left to do
	err   error                           // why it is left, as the caller was told
}

// janitorPause is how long the janitor waits before it tries again.
const janitorPause = 250 * time.Millisecond

func (j *janitor) init(c *Client) { j.c = c }

// add takes over a clean-up.
func (j *janitor) add(k *cleanup) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, k)
	if !j.running {
		j.running = j.c.spawn(j.run)
	}
}

// all hands over what is pending.
func (j *janitor) all() []*cleanup {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := j.pending
	j.pending = nil
	return out
}

func (j *janitor) run() {
	for sleep(j.c.lifetime, janitorPause) && j.round(j.c.lifetime) {
	}
}

// round tries what is pending, and stops at the first that fails: without an
// answer the others would get none either. It returns false when nothing is
// left to do.
func (j *janitor) round(ctx context.Context) bool {
	for k := j.first(); k != nil && ctx.Err() == nil; k = j.first() {
		if j.c.clock.now() < k.until {
			call, cancel := context.WithTimeout(ctx, j.c.opts.CleanupBudget)
			err := k.try(call)
			cancel()
			if err != nil {
				return true
			}
		}
		j.drop(k)
	}
	return false
}

// first returns a clean-up and puts it last, so that one that always fails
// holds up no other. Without one the janitor ends.
func (j *janitor) first() *cleanup {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending) == 0 {
		j.pending, j.running = nil, false
		return nil
	}
	k := j.pending[0]
	copy(j.pending, j.pending[1:])
	j.pending[len(j.pending)-1] = k
	return k
}

func (j *janitor) drop(k *cleanup) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.Index(j.pending, k); i >= 0 {
		j.pending = slices.Delete(j.pending, i, i+1)
	}
}
