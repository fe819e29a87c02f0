package redlock

import (
	"sync"
	"time"
)

// retired are the owners of this host whose leases without a token it has
// released. Without tokens a release looks like a withdrawal, but the grant is
// known to be over, on connections that keep their order: refusing the owner
// on every node would cost more than the release. So it is refused here.
type retired struct {
	mu      sync.Mutex
	live    map[string]time.Time // granted by this backend, when, and not released yet
	sweepAt int                  // size of live at which the old ones are dropped
	past    map[string]struct{}
	order   []string // of past, as a ring
	oldest  int
}

// mostRetired bounds past. An owner is never used again in earnest, so this is
// about requests that were on their way, and about callers that are wrong.
const mostRetired = 8192

// rememberFor is how long a grant is remembered whose lease was never
// released. One that is released later is withdrawn on the nodes.
const rememberFor = 10 * time.Minute

func (r *retired) granted(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live == nil {
		r.live, r.past = map[string]time.Time{}, map[string]struct{}{}
	}
	if len(r.live) >= r.sweepAt {
		for o, since := range r.live {
			if time.Since(since) > rememberFor {
				delete(r.live, o)
			}
		}
		r.sweepAt = 2*len(r.live) + 1024
	}
	r.live[owner] = time.Now()
}

// end retires owner, and reports whether its lease was granted here.
func (r *retired) end(owner string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.live[owner]; !ok {
		return false
	}
	delete(r.live, owner)
	if len(r.order) < mostRetired {
		r.order = append(r.order, owner)
	} else {
		delete(r.past, r.order[r.oldest])
		r.order[r.oldest] = owner
		r.oldest = (r.oldest + 1) % mostRetired
	}
	r.past[owner] = struct{}{}
	return true
}

func (r *retired) has(owner string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.past[owner]
	return ok
}
