package kit

import (
	"context"
	"slices"
	"sync"

	"github.com/lockbench/lockbench/core/driver"
)

// Feeds passes a backend's notices to the backend's current watchers. The zero value has no
// watchers. Any number of goroutines may call the methods, even while they hold a mutex. Note: each
// watcher needs a queue. Otherwise a host that does not read from its plugin would block every
// caller of Announce.
type Feeds struct {
	mu   sync.Mutex
	open []*Feed
}

// Feed is the queue of notices for one watcher, in the order in which they were announced.
type Feed struct {
	feeds   *Feeds
	pending []driver.Notice
	more    chan struct{}
}

// Open returns a new Feed, which the caller must close.
func (fs *Feeds) Open() *Feed {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := &Feed{feeds: fs, more: make(chan struct{}, 1)}
	fs.open = append(fs.open, f)
	return f
}

// Watched reports whether there is at least one watcher.
func (fs *Feeds) Watched() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.open) > 0
}

// Announce queues the notice n for every watcher.
func (fs *Feeds) Announce(n driver.Notice) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.open {
		f.pending = append(f.pending, n)
		Wake(f.more)
	}
}

// More returns a channel that gets a signal when Take would return notices. Any goroutine may also
// send to this channel, to wake the watcher.
func (f *Feed) More() chan struct{} { return f.more }

// Take removes all notices from the Feed and returns them.
func (f *Feed) Take() []driver.Notice {
	f.feeds.mu.Lock()
	defer f.feeds.mu.Unlock()
	notices := f.pending
	f.pending = nil
	return notices
}

// Pass calls emit with each notice, one at a time. It returns ctx.Err() when ctx ends, and
// driver.ErrClosed when the context background of the backend ends.
func (f *Feed) Pass(ctx, background context.Context, emit func(driver.Notice)) error {
	for {
		select {
		case <-f.more:
		case <-ctx.Done():
			return ctx.Err()
		case <-background.Done():
			return driver.ErrClosed
		}
		for _, n := range f.Take() {
			emit(n)
		}
	}
}

// Close ends the Feed.
func (f *Feed) Close() {
	f.feeds.mu.Lock()
	defer f.feeds.mu.Unlock()
	f.feeds.open = slices.DeleteFunc(f.feeds.open, func(other *Feed) bool { return other == f })
}
