package core

import (
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// janitor goes on withdrawing acquires whose callers were told that the
// outcome is unknown, until such a grant would be over or the client closes.
type janitor struct {
	c       *Client
	mu      sync.Mutex
	pending []withdrawal
	running bool
}

type withdrawal struct {
	req   driver.Request
	until instant
}

const (
	janitorPause = 250 * time.Millisecond
)

func (j *janitor) init(c *Client) { j.c = c }

// add takes over a withdrawal.
func (j *janitor) add(r driver.Request, until instant) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, withdrawal{req: r, until: until})
	if !j.running {
		j.running = j.c.spawn(j.run)
	}
}

func (j *janitor) run() {
	for {
		sleep(j.c.life, janitorPause)
		if !j.round(j.c.life) {
			return
		}
	}
}

// round tries all that is pending, and stops at the first that gets no answer.
// It returns false when nothing is left to do.
func (j *janitor) round(ctx context.Context) bool {
	now := j.c.clock.now()
	j.mu.Lock()
	todo := j.pending
	j.pending = nil
	j.mu.Unlock()
	for len(todo) > 0 && ctx.Err() == nil {
		if todo[0].until <= now {
			todo = todo[1:]
			continue
		}
		call, cancel := context.WithTimeout(ctx, j.c.opts.CleanupBudget)
		err := j.c.withdraw(call, todo[0].req)
		cancel()
		if err != nil {
			break
		}
		todo = todo[1:]
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if ctx.Err() != nil {
		j.pending = nil
	} else {
		j.pending = append(todo, j.pending...)
	}
	j.running = len(j.pending) > 0
	return j.running
}
