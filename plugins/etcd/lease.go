package etcd

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/core/driver"
)

// lease is an etcd lease that the locks of one TTL share. Its fields below mu's
// comment are guarded by leases.mu.
type lease struct {
	id  int64
	ttl time.Duration

	acked   time.Time // when its last acknowledged keepalive, or its grant, was sent
	retired bool      // is not renewed any more; locks leave it with their next renewal
	load    int       // locks and places that were put on it
}

// maxLoad is how many keys share a lease: when it ends with its host, the server
// deletes them in one go, during which it does nothing else.
const maxLoad = 1024

// leases hands out the shared leases, one at a time for each TTL.
//
// Sharing saves the consensus entry of a LeaseGrant for each lock, and makes one
// keepalive renew many locks. What it would break is put right thus:
//   - A key that is put late in the life of its lease would live shorter. So a
//     keepalive goes out beside the Txn of every acquire, one for all that share
//     it, and counts from its sending.
//   - A key whose lock is not renewed would live on with the others. So the
//     backend deletes it at its own deadline (held.run), and once a delete, or
//     an acquire, has an unknown outcome, the lease is retired: locks move to
//     another with their next renewal, and what stays dies with it.
//   - A new process knows none of this, so it never renews a lease of an older
//     one: it moves each lock that it is asked to renew to a lease of its own.
//
// Note: a lease for each lock, granted in advance and used again after a
// confirmed release, needs none of this but a keepalive for each lock where
// this needs one for all; doc.go has the count.
type leases struct {
	b        *Backend
	mu       sync.Mutex
	current  map[time.Duration]*lease
	granting map[time.Duration]chan struct{} // closed when the grant is done
}

func (ls *leases) init(b *Backend) {
	ls.b, ls.current, ls.granting = b, map[time.Duration]*lease{}, map[time.Duration]chan struct{}{}
}

// get returns the lease to put a key with this TTL on.
func (ls *leases) get(ctx context.Context, ttl time.Duration) (*lease, error) {
	for {
		if l := ls.atHand(ttl); l != nil {
			return l, nil
		}
		ls.mu.Lock()
		underWay := ls.granting[ttl]
		if underWay == nil {
			underWay = make(chan struct{})
			ls.granting[ttl] = underWay
			ls.mu.Unlock()
			l, err := ls.grant(ctx, ttl)
			ls.mu.Lock()
			delete(ls.granting, ttl)
			if err == nil {
				ls.current[ttl] = l
			}
			close(underWay)
			ls.mu.Unlock()
			if err != nil {
				return nil, err
			}
			continue
		}
		ls.mu.Unlock()
		select {
		case <-underWay:
		case <-ctx.Done():
			return nil, ls.b.interrupted(ctx, false)
		}
	}
}

// atHand returns the present lease for this TTL, nil when one is to be made.
func (ls *leases) atHand(ttl time.Duration) *lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.current[ttl]
	if l == nil || !l.usable(time.Now()) || l.load >= maxLoad {
		return nil
	}
	l.load++
	return l
}

// usable leaves a lease alone that may be over before the keepalive arrives.
func (l *lease) usable(now time.Time) bool {
	return !l.retired && now.Before(l.acked.Add(l.ttl-min(l.ttl/4, time.Second)))
}

// grant makes a lease that no key knows, so that an unknown outcome is harmless
// and certain to have touched no lock.
func (ls *leases) grant(ctx context.Context, ttl time.Duration) (*lease, error) {
	sent := time.Now()
	resp, err := ls.request(ctx, ttl)
	if err != nil {
		return nil, ls.b.untouched(err)
	}
	if granted := time.Duration(resp.TTL) * time.Second; granted != ttl {
		ls.revoke(ctx, resp.ID)
		ls.b.mu.Lock()
		ls.b.properties.TTLMin = granted
		ls.b.mu.Unlock()
		return nil, errBelow(ttl, granted)
	}
	return &lease{id: resp.ID, ttl: ttl, acked: sent}, nil
}

func (ls *leases) request(ctx context.Context, ttl time.Duration) (*pb.LeaseGrantResponse, error) {
	return call(ls.b, ctx, true, func(ctx context.Context, c *conn) (*pb.LeaseGrantResponse, error) {
		return c.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: int64(ttl / time.Second)})
	})
}

// revoke gives back a lease without keys.
func (ls *leases) revoke(ctx context.Context, id int64) {
	_, err := call(ls.b, ctx, true, func(ctx context.Context, c *conn) (*pb.LeaseRevokeResponse, error) {
		return c.lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
	})
	if err != nil {
		ls.b.opts.Logger.Debug("etcd: a lease without keys is left to expire", "error", err)
	}
}

// beat starts a keepalive of l, unless one was acknowledged that was sent at or
// after since: then the result is nil.
func (ls *leases) beat(l *lease, since time.Time) *beat {
	ls.mu.Lock()
	fresh := !l.acked.Before(since)
	over := !time.Now().Before(l.acked.Add(l.ttl))
	ls.mu.Unlock()
	switch {
	case fresh:
		return nil
	case over: // the server would stop the whole stream until it has revoked it
		bt := &beat{id: l.id, err: errLeaseGone, done: make(chan struct{})}
		close(bt.done)
		return bt
	}
	return ls.b.pulse.ask(l.id)
}

// await waits for a keepalive from beat, and keeps account of it.
func (ls *leases) await(ctx context.Context, l *lease, bt *beat) error {
	if bt == nil {
		return nil
	}
	select {
	case <-bt.done:
	case <-ctx.Done():
		return ls.b.interrupted(ctx, true)
	case <-ls.b.ctx.Done():
		return driver.ErrClosed
	}
	if bt.err == errLeaseGone {
		ls.retire(l)
		return errLeaseGone
	}
	if bt.err != nil {
		return ls.b.wrap(bt.err)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if bt.sent.After(l.acked) {
		l.acked = bt.sent
	}
	return nil
}

// retire stops the renewal of l.
func (ls *leases) retire(l *lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.retired = true
	if ls.current[l.ttl] == l {
		delete(ls.current, l.ttl)
	}
}

// retireAll stops the renewal of what is given to new locks.
func (ls *leases) retireAll() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.current {
		l.retired = true
	}
	clear(ls.current)
}

// renewable reports whether a keepalive is the way to renew what is on l.
func (ls *leases) renewable(l *lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return !l.retired
}

func (ls *leases) unload(l *lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.load--
}

// shortest is the least TTL that the server grants, as far as is known.
func (b *Backend) shortest() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(assumedTTLMin, b.properties.TTLMin)
}
