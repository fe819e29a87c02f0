package redlock

import (
	"time"

	"github.com/lockbench/lockbench/plugins/internal/recent"
)

// tombstones are the owners of this host that it refuses itself, without
// fencing. Most are those whose leases it has released. Without tokens a release
// looks like a withdrawal, but the grant is known to be over, on connections
// that keep their order: refusing the owner on every node would cost more than
// the release. So it is refused here.
type tombstones struct {
	live recent.Map[string, struct{}] // granted by this backend, and not released yet
	past recent.Map[string, struct{}]
	// undone are owners whose failed attempt some node has not confirmed to be
	// undone: the undo may come after the owner's next grant, and take it.
	undone recent.Map[string, struct{}]
}

const (
	// maxTombstones bounds past and undone. An owner in past is never used again in
	// earnest, so this is about requests that were on their way, and about callers
	// that are wrong. One in undone is used once more, and gets to know then.
	maxTombstones = 8192
	// rememberFor is how long a grant is remembered whose lease was never
	// released. One that is released later is withdrawn on the nodes.
	rememberFor = 10 * time.Minute
)

func (r *tombstones) init() {
	r.live.Age, r.past.Limit, r.undone.Limit = rememberFor, maxTombstones, maxTombstones
}

// refuse reports whether owner must not be granted anything any more.
func (r *tombstones) refuse(owner string) bool { return r.past.Has(owner) || r.undone.Has(owner) }

// end has owner refused here from now on if its lease was granted here, and
// reports whether it was.
func (r *tombstones) end(owner string) bool {
	if !r.live.Take(owner) {
		return false
	}
	r.past.Put(owner, struct{}{})
	return true
}
