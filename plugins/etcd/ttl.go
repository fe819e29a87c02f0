package etcd

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// ttls asks for what is left of leases, and remembers it for a moment: a waiter
// needs no more than a hint, and the locks of one host share a lease.
type ttls struct {
	cluster *cluster.Cluster
	known   kit.Recent[int64, expiry]
}

// expiry is what a server has said of a lease: until when it lives, and for how
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

// left is in whole seconds, as etcd counts, and up to one too little; negative
// for a key without a lease, which somebody else has put there.
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
