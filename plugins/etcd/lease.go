package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/keepalive"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// lease is an etcd lease, which many keys of one purpose share. The mutex leases.mu guards the
// field acked. A caller that raises the field load also holds this mutex.
type lease struct {
	id int64
	purpose

	acked   time.Time    // when its last acknowledged keepalive, or else its LeaseGrant, was sent
	retired atomic.Bool  // it is no longer renewed
	load    atomic.Int32 // number of keys put on it
}

// purpose says what a lease is for: locks of one TTL, waiters, or tombstones.
type purpose struct {
	ttl time.Duration
	use role
}

type role int

const (
	locks role = iota
	waiting
	tombstones
	foreign // locks, on a lease that was found in the store, usually of another process
)

// maxLoad is the largest number of keys on one lease. When a lease ends because its host has died,
// the server deletes all its keys at once, and does nothing else meanwhile.
const maxLoad = 1024

const (
	// A tombstone is a key that makes the store refuse a withdrawn owner. It lasts for at least
	// tombstoneFor. At most maxTombstones tombstones share one lease, which is never renewed. A lease
	// takes new tombstones only until tombstoneUse has passed since its LeaseGrant.
	tombstoneFor  = time.Minute
	tombstoneUse  = 10 * time.Second
	maxTombstones = 256
)

var forTombstones = purpose{ttl: tombstoneFor + tombstoneUse, use: tombstones}

// leases hands out the shared leases. One lease at a time is in use for each purpose.
//
// Sharing saves a LeaseGrant (an entry in the consensus log) for each lock, and one keepalive
// renews many locks. Sharing causes three problems, which are solved as follows:
//   - A key that is put late in the life of its lease would end too early. So
//     every Txn with acquires is sent together with one keepalive of the lease.
//     From then on, the lease lasts for the whole TTL.
//   - A key whose lock is not renewed would live as long as the lease's other keys (see table.run).
//   - A new process does not know the deadlines of an earlier process's locks, so it renews no
//     lease of that process (but see move). A renewal moves the lock to a lease of the new process.
type leases struct {
	cluster    *cluster.Cluster
	keepalives *keepalive.Sender
	expiries   kit.Recent[int64, expiry] // of leases of any process, by id

	granting chan struct{} // holds one value while a lease is made
	mu       sync.Mutex
	current  map[purpose]*lease
	least    atomic.Int64 // the shortest TTL that the server grants, as far as known
}

func newLeases(c *cluster.Cluster) *leases {
	ls := &leases{
		cluster: c, keepalives: keepalive.New(c),
		expiries: kit.Recent[int64, expiry]{Age: rememberTTL, Limit: maxTTLs},
		granting: make(chan struct{}, 1), current: map[purpose]*lease{},
	}
	ls.setLeast(assumedTTLMin)
	return ls
}

// get returns the lease for a new key of purpose p. If p's TTL is below the shortest TTL that the
// server grants, the lease has that shortest TTL. Only one lease is made at a time. After an error
// no lock has changed, because a new lease has no keys.
func (ls *leases) get(ctx context.Context, p purpose) (*lease, error) {
	if l := ls.atHand(p); l != nil {
		return l, nil
	}
	select {
	case ls.granting <- struct{}{}:
	case <-ctx.Done():
		return nil, ls.cluster.Untouched(ctx.Err())
	}
	defer func() { <-ls.granting }()
	if l := ls.atHand(p); l != nil {
		return l, nil
	}
	sent := time.Now()
	resp, err := ls.cluster.Grant(ctx, p.ttl)
	if err != nil {
		return nil, ls.cluster.Untouched(err)
	}
	granted := time.Duration(resp.TTL) * time.Second
	if granted > p.ttl {
		ls.setLeast(granted)
	}
	l := &lease{id: resp.ID, purpose: purpose{ttl: granted, use: p.use}, acked: sent}
	l.load.Store(1)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.current[l.purpose] = l
	return l, nil
}

// atHand returns the present lease for purpose p. It returns nil if a new lease must be made,
// because there is none, or the present one is retired, full, or may end before the next keepalive.
func (ls *leases) atHand(p purpose) *lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.current[p]
	if l == nil || l.retired.Load() {
		return nil
	}
	most, until := int32(maxLoad), l.ttl-min(l.ttl/4, time.Second)
	if p.use == tombstones {
		most, until = maxTombstones, tombstoneUse
	}
	if l.load.Load() >= most || time.Since(l.acked) >= until {
		return nil
	}
	l.load.Add(1)
	return l
}

func (ls *leases) setLeast(ttl time.Duration) { ls.least.Store(int64(ttl)) }

func (ls *leases) shortest() time.Duration { return time.Duration(ls.least.Load()) }

// keepalive sends a keepalive of the lease l and returns it. It sends none and returns nil if the
// time that method sign returns for l is not before the parameter since.
func (ls *leases) keepalive(l *lease, since time.Time) *keepalive.Keepalive {
	switch acked := ls.sign(l); {
	case !acked.Before(since):
		return nil
	case !time.Now().Before(acked.Add(l.ttl)): // a keepalive would block the whole stream until the lease is revoked
		k := &keepalive.Keepalive{Done: make(chan struct{}), Err: keepalive.ErrGone}
		close(k.Done)
		return k
	}
	return ls.keepalives.Send(l.id)
}

// await waits for the answer to the keepalive k, which may be nil, and records it. Its error is not
// wrapped; see cluster.Cluster.Wrap.
func (ls *leases) await(ctx context.Context, l *lease, k *keepalive.Keepalive) error {
	if k == nil {
		return nil
	}
	select {
	case <-k.Done:
	case <-ctx.Done():
		return ctx.Err()
	case <-ls.cluster.Context().Done():
		return driver.ErrClosed
	}
	if k.Err == keepalive.ErrGone {
		l.retired.Store(true)
	}
	if k.Err != nil {
		return k.Err
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if k.Sent.After(l.acked) {
		l.acked = k.Sent
	}
	return nil
}

// sign returns the time at which the last confirmed keepalive of the lease l was sent. Before the
// first one, it returns when the LeaseGrant was sent. From that time, l lives for at least its TTL.
func (ls *leases) sign(l *lease) time.Time {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return l.acked
}

// retireAll ends the renewal of the present leases. New keys are then put on new leases.
func (ls *leases) retireAll() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.current {
		l.retired.Store(true)
	}
}

// expiry is a server's answer about a lease: when the lease ends, and the TTL that was granted.
type expiry struct {
	at      time.Time
	granted time.Duration
}

const (
	rememberTTL = 250 * time.Millisecond // answers are kept at least this long, at most twice as long
	maxTTLs     = 1000
)

// The method expiry asks a server when the lease with this id ends. It keeps the answer for a
// moment, because waiters need only a rough time. The returned end may be up to 1 s too early,
// because etcd rounds down. For id 0, which is no lease, the result is the zero expiry.
func (ls *leases) expiry(ctx context.Context, id int64) (expiry, error) {
	if e, known := ls.expiries.Get(id); known || id == 0 {
		return e, nil
	}
	now := time.Now()
	resp, err := ls.cluster.TimeToLive(ctx, id)
	if err != nil {
		return expiry{}, ls.cluster.Wrap(err)
	}
	left := time.Duration(max(0, resp.TTL)) * time.Second
	e := expiry{at: now.Add(left), granted: time.Duration(resp.GrantedTTL) * time.Second}
	ls.expiries.Put(id, e)
	return e, nil
}
