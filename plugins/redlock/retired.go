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
	mu   sync.Mutex
	live recent // granted by this backend, and not released yet
	// past has the newest that are retired, and before as many that are older.
	past, before map[string]struct{}
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
	r.live.put(owner, rememberFor)
}

// end retires owner, and reports whether its lease was granted here.
func (r *retired) end(owner string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.live.take(owner) {
		return false
	}
	if r.past == nil || len(r.past) == mostRetired {
		r.before, r.past = r.past, map[string]struct{}{}
	}
	r.past[owner] = struct{}{}
	return true
}

func (r *retired) has(owner string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, newer := r.past[owner]
	_, older := r.before[owner]
	return newer || older
}
