package plugin

import (
	"sync"

	"github.com/lockbench/lockbench/core/driver"
)

// watchers hands notices to every watcher, in one order for all. Unlike the feeds of
// a backend it queues nothing: core hears of a plugin's death before the next one
// is asked for anything.
type watchers struct {
	mu   sync.Mutex
	all  map[*func(driver.Notice)]struct{}
	down *driver.Notice // while the plugin is down
}

// notify calls every watcher, and returns after the last one.
func (w *watchers) notify(n driver.Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.Plugin {
		w.down = nil
		if n.Kind == driver.NoticeDown {
			w.down = &n
		}
	}
	for emit := range w.all {
		(*emit)(n)
	}
}

// add starts telling emit, first of all that the plugin is down if it is.
// After remove has returned, emit is not called any more.
func (w *watchers) add(emit func(driver.Notice)) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		emit(*w.down)
	}
	if w.all == nil {
		w.all = map[*func(driver.Notice)]struct{}{}
	}
	key := &emit
	w.all[key] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, key)
	}
}
