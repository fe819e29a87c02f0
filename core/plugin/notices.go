package plugin

import (
	"sync"

	"github.com/lockbench/lockbench/core/driver"
)

// hub hands notices to every watcher, in one order for all. Unlike the feeds of
// a backend it queues nothing: core hears of a plugin's death before the next one
// is asked for anything.
type hub struct {
	mu       sync.Mutex
	watchers map[*func(driver.Notice)]struct{}
	down     *driver.Notice // while the plugin is down
}

// notify calls every watcher, and returns after the last one.
func (h *hub) notify(n driver.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.Plugin {
		h.down = nil
		if n.Kind == driver.NoticeDown {
			h.down = &n
		}
	}
	for emit := range h.watchers {
		(*emit)(n)
	}
}

// add starts telling emit, first of all that the plugin is down if it is.
// After remove has returned, emit is not called any more.
func (h *hub) add(emit func(driver.Notice)) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down != nil {
		emit(*h.down)
	}
	if h.watchers == nil {
		h.watchers = map[*func(driver.Notice)]struct{}{}
	}
	key := &emit
	h.watchers[key] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, key)
	}
}
