package etcd

import (
	"context"
	"sync"
	"time"
)

const (
	// tombstoneFor is how long a withdrawn owner is refused at least, tombstoneUse
	// how long tombstones are put on one lease, which is never renewed.
	tombstoneFor = time.Minute
	tombstoneUse = 10 * time.Second
	// maxTombstones bounds what the server deletes at once when such a lease ends.
	maxTombstones = 256
)

// tombstones has the lease that the next tombstone is put on.
type tombstones struct {
	leases *leases

	mu      sync.Mutex
	current *lease
	count   int // of tombstones on it
}

// lease returns a lease to put a tombstone on.
func (ts *tombstones) lease(ctx context.Context) (*lease, error) {
	ts.mu.Lock()
	if l := ts.current; l != nil && ts.count < maxTombstones && time.Since(l.acked) < tombstoneUse {
		ts.count++
		ts.mu.Unlock()
		return l, nil
	}
	ts.mu.Unlock()
	l, err := ts.leases.grant(ctx, tombstoneFor+tombstoneUse)
	if err != nil {
		return nil, err
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.current, ts.count = l, 1
	return l, nil
}

// drop has another lease made instead of l.
func (ts *tombstones) drop(l *lease) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.current == l {
		ts.current = nil
	}
}
