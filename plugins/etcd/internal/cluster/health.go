package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

const (
	// quiet is the time without an answer after which health sends a read to the store.
	quiet = time.Second
	// timeout limits the read that health sends. A store that does not answer in time counts as down.
	timeout = time.Second
	// downPause is the pause between two checks of a store that is down.
	downPause = 200 * time.Millisecond
)

// health records whether the store is up. A failed request does not prove that the store is down.
// So health at once sends a read through the consensus, and the outcome of this read decides.
type health struct {
	wake    chan struct{}
	late    atomic.Int32           // counts requests whose answer is overdue
	silent  atomic.Pointer[func()] // called after each check without an answer
	notices kit.Feeds

	mu    sync.Mutex
	heard time.Time // when the last answer came
	down  error     // why the store is down; nil when it is up
}

// Report must be called with each error of a request or a stream, and with nil after an answer.
func (c *Cluster) Report(err error) {
	if !isAnswer(err) {
		kit.Wake(c.health.wake)
		return
	}
	c.health.set(nil)
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
	n := driver.Notice{Kind: driver.NoticeUp, Err: down}
	if down != nil {
		n.Kind = driver.NoticeDown
	}
	h.notices.Announce(n)
}

// Down returns why the store is down, or nil if it is up.
func (c *Cluster) Down() error {
	h := &c.health
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down
}

// Follow opens a feed, which gets a notice when the store goes down or comes up. The error down
// says why the store is down now, and is nil if the store is up. While no feed is open, health does
// not regularly check a store that is up. The caller closes the feed.
func (c *Cluster) Follow() (f *kit.Feed, down error) {
	h := &c.health
	h.mu.Lock()
	defer h.mu.Unlock()
	kit.Wake(h.wake)
	return h.notices.Open(), h.down
}

// Notices returns the feeds of all callers of Follow. These feeds also get notices of lost locks.
func (c *Cluster) Notices() *kit.Feeds { return &c.health.notices }

// OnSilence makes f run after each health check to which the store gave no answer.
func (c *Cluster) OnSilence(f func()) { c.health.silent.Store(&f) }

// watchHealth checks the store after errors, and regularly if it is down or slow or a feed is open.
func (c *Cluster) watchHealth() {
	for {
		select {
		case <-c.health.wake:
			c.ask()
		case <-time.After(c.health.pause()):
			if c.health.stale() {
				c.ask()
			}
		case <-c.background.Done():
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
	case h.late.Load() > 0:
		return slowAfter
	case !h.notices.Watched():
		return time.Hour // Follow wakes it
	}
	return quiet
}

func (h *health) stale() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down != nil || h.late.Load() > 0 || h.notices.Watched() && time.Since(h.heard) >= quiet
}

func (c *Cluster) ask() {
	ctx, cancel := context.WithTimeout(c.background, timeout)
	defer cancel()
	err := c.poll(ctx)
	if c.background.Err() != nil {
		return
	}
	c.health.set(c.Wrap(err))
	if silent := c.health.silent.Load(); err != nil && silent != nil {
		(*silent)()
	}
}

// overdue is called when a request begins. If the returned function stop is not called
// within slowAfter, health checks which members answer, again and again, until stop is called.
func (c *Cluster) overdue() (stop func()) {
	if len(c.all) == 1 {
		return func() {}
	}
	timer := time.AfterFunc(slowAfter, func() {
		c.health.late.Add(1)
		kit.Wake(c.health.wake)
	})
	return func() {
		if !timer.Stop() {
			c.health.late.Add(-1)
		}
	}
}
