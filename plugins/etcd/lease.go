package etcd

import (
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/keepalive"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// lease is an etcd lease that the keys of one purpose share. Its fields from
// acked on are guarded by leases.mu.
type lease struct {
	id int64
	purpose

	acked   time.Time // when its last acknowledged keepalive, or its grant, was sent
	retired bool      // is not renewed any more
	load    int       // keys that were put on it
}

// purpose is the use of a lease: for locks of one TTL, for waiters, or for tombstones.
type purpose struct {
	ttl time.Duration
	use role
}

type role int

const (
	locks role = iota
	waiting
	tombstones
)

// maxLoad is how many keys share a lease. The server deletes them all at once
// when the lease ends with its host, and does nothing else meanwhile.
const maxLoad = 1024

const (
	// tombstoneFor is how long a withdrawn owner is refused at least, tombstoneUse
	// how long tombstones are put on one lease, which is never renewed, and
	// maxTombstones how many.
	tombstoneFor  = time.Minute
	tombstoneUse  = 10 * time.Second
	maxTombstones = 256
)

var forTombstones = purpose{ttl: tombstoneFor + tombstoneUse, use: tombstones}

// leases hands out the shared leases, one at a time for each purpose.
//
// Sharing saves the consensus entry of a LeaseGrant for each lock, and makes one
// keepalive renew many locks. What it would break is put right thus:
//   - A key that is put late in the life of its lease would live shorter. So a
//     keepalive goes out beside the Txn of every acquire, one for all that share
//     it, and counts from its sending.
//   - A key whose lock is not renewed would live on with the others. So the
//     backend deletes it at its own deadline (table.run), again and again until that
//     is confirmed.
//   - A new process knows none of this, so it never renews a lease of an older
//     one: it moves each lock that it is asked to renew to a lease of its own.
//
// Waiters have a separate lease, as short as the server grants, because it
// bounds what a lost machine costs the waiters behind it. The first renewal
// moves the entry that has become the lock to a lease of its TTL.
type leases struct {
	cluster    *cluster.Cluster
	keepalives *keepalive.Sender

	granting chan struct{} // holds one while a lease is made
	mu       sync.Mutex
	current  map[purpose]*lease
	least    time.Duration // the shortest TTL that the server grants, as far as is known
}

func newLeases(c *cluster.Cluster) *leases {
	return &leases{
		cluster: c, keepalives: keepalive.New(c), least: assumedTTLMin,
		granting: make(chan struct{}, 1), current: map[purpose]*lease{},
	}
}

// get returns the lease to put a key on. Leases are made one after another.
func (ls *leases) get(ctx context.Context, p purpose) (*lease, error) {
	if l := ls.atHand(p); l != nil {
		return l, nil
	}
	select {
	case ls.granting <- struct{}{}:
	case <-ctx.Done():
		return nil, ls.cluster.Interrupted(ctx, false)
	}
	defer func() { <-ls.granting }()
	if l := ls.atHand(p); l != nil {
		return l, nil
	}
	l, err := ls.grant(ctx, p)
	if err != nil {
		return nil, err
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.load = 1
	ls.current[p] = l
	return l, nil
}

// atHand returns the present lease for this purpose, or nil when one must be made.
func (ls *leases) atHand(p purpose) *lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.current[p]
	if l == nil || !l.usable(time.Now()) {
		return nil
	}
	l.load++
	return l
}

// usable reports whether there is room on l. A lease that may end before the
// keepalive arrives is not usable.
func (l *lease) usable(now time.Time) bool {
	switch {
	case l.retired:
		return false
	case l.use == tombstones:
		return l.load < maxTombstones && now.Sub(l.acked) < tombstoneUse
	}
	return l.load < maxLoad && now.Before(l.acked.Add(l.ttl-min(l.ttl/4, time.Second)))
}

// grant makes a lease that no key knows, so that an unknown outcome is harmless
// and certain to have touched no lock.
func (ls *leases) grant(ctx context.Context, p purpose) (*lease, error) {
	sent := time.Now()
	resp, err := ls.cluster.Grant(ctx, p.ttl)
	if err != nil {
		return nil, ls.cluster.Untouched(err)
	}
	if granted := time.Duration(resp.TTL) * time.Second; granted != p.ttl {
		ls.cluster.Revoke(ctx, resp.ID)
		ls.setLeast(granted)
		return nil, errBelow(p.ttl, granted)
	}
	return &lease{id: resp.ID, purpose: p, acked: sent}, nil
}

// learn asks the server for the shortest TTL that it grants, by a lease that is
// given back at once.
func (ls *leases) learn(ctx context.Context) error {
	resp, err := ls.cluster.Grant(ctx, time.Second)
	if err != nil {
		return ls.cluster.Wrap(err)
	}
	ls.cluster.Revoke(ctx, resp.ID)
	ls.setLeast(time.Duration(resp.TTL) * time.Second)
	return nil
}

func (ls *leases) setLeast(ttl time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.least = ttl
}

// shortest is the least TTL that the server grants, as far as is known.
func (ls *leases) shortest() time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.least
}

// keepalive starts a keepalive of l, unless one was acknowledged that was sent at
// or after since: then the result is nil.
func (ls *leases) keepalive(l *lease, since time.Time) *keepalive.Keepalive {
	ls.mu.Lock()
	fresh := !l.acked.Before(since)
	over := !time.Now().Before(l.acked.Add(l.ttl))
	ls.mu.Unlock()
	switch {
	case fresh:
		return nil
	case over: // a keepalive would stop the whole stream until the server has revoked the lease
		k := &keepalive.Keepalive{Done: make(chan struct{}), Err: keepalive.ErrGone}
		close(k.Done)
		return k
	}
	return ls.keepalives.Send(l.id)
}

// await waits for the answer to k, which may be nil, and records it.
func (ls *leases) await(ctx context.Context, l *lease, k *keepalive.Keepalive) error {
	if k == nil {
		return nil
	}
	select {
	case <-k.Done:
	case <-ctx.Done():
		return ls.cluster.Interrupted(ctx, true)
	case <-ls.cluster.Context().Done():
		return driver.ErrClosed
	}
	if k.Err == keepalive.ErrGone {
		ls.retire(l)
		return keepalive.ErrGone
	}
	if k.Err != nil {
		return ls.cluster.Wrap(k.Err)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if k.Sent.After(l.acked) {
		l.acked = k.Sent
	}
	return nil
}

// sign returns when the last confirmed keepalive of l was sent. l lives for its
// TTL from then at least.
func (ls *leases) sign(l *lease) time.Time {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return l.acked
}

// retire stops the renewal of l.
func (ls *leases) retire(l *lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.retired = true
	if ls.current[l.purpose] == l {
		delete(ls.current, l.purpose)
	}
}

// retireAll stops the renewal of the leases that new locks get.
func (ls *leases) retireAll() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.current {
		l.retired = true
	}
	clear(ls.current)
}

// renewable reports whether a keepalive is the way to renew what is on l for ttl.
func (ls *leases) renewable(l *lease, ttl time.Duration) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return !l.retired && l.purpose == purpose{ttl: ttl}
}

// alive reports whether l is renewed, as far as is known.
func (ls *leases) alive(l *lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return !l.retired
}

// unload takes a key off l.
func (ls *leases) unload(l *lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.load--
}

// ttls asks for the remaining time of leases, and remembers it for a moment,
// because a waiter needs only a hint, and the locks of one host share a lease.
type ttls struct {
	cluster *cluster.Cluster
	known   kit.Recent[int64, expiry]
}

// expiry is a server's answer about a lease: until when it lives, and for how
// long it was granted.
type expiry struct {
	at      time.Time
	granted time.Duration
}

const (
	rememberTTL = 250 * time.Millisecond // and twice that at most
	maxTTLs     = 1000
)

func newTTLs(c *cluster.Cluster) *ttls {
	return &ttls{cluster: c, known: kit.Recent[int64, expiry]{Age: rememberTTL, Limit: maxTTLs}}
}

// left returns whole seconds, as etcd counts, and up to one too little. It is
// negative for a key without a lease, which another program has put there.
func (t *ttls) left(ctx context.Context, id int64) (time.Duration, error) {
	if id == 0 {
		return -1, nil
	}
	e, err := t.of(ctx, id)
	if err != nil {
		return 0, err
	}
	return max(time.Millisecond, kit.UpToMillis(time.Until(e.at))), nil
}

// of returns what is known of a lease, or asks.
func (t *ttls) of(ctx context.Context, id int64) (expiry, error) {
	if e, known := t.known.Get(id); known {
		return e, nil
	}
	now := time.Now()
	resp, err := t.cluster.TimeToLive(ctx, id)
	if err != nil {
		return expiry{}, t.cluster.Wrap(err)
	}
	left := time.Duration(max(0, resp.TTL)) * time.Second
	e := expiry{at: now.Add(left), granted: time.Duration(resp.GrantedTTL) * time.Second}
	t.known.Put(id, e)
	return e, nil
}
