package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockbench/lockbench/plugins/internal/kit"
)

const (
	lookEvery = 30 * time.Second // the shortest time between two checks of all members
	lookAgain = 2 * time.Second  // the shortest time between two checks while two clusters are seen
	// Locks are granted again once no second cluster has answered for the duration settles. A load
	// balancer may lead connections to the clusters in turn, so one check does not suffice.
	settles = 10 * time.Second
)

// identity records which cluster the answers come from, and whether the addresses
// lead to a second cluster, because two clusters could both grant a lock.
type identity struct {
	kit.Identity
	looking chan struct{}             // holds one value during a check of all members
	looked  atomic.Pointer[time.Time] // when the last check began; zero before the first
}

// header is implemented by every answer of a member.
type header interface{ GetHeader() *pb.ResponseHeader }

// admit returns an error if the answer h, which came over conn, is from another cluster than the
// one in use. After an error, h and conn must not be used, and the request has changed no lock of
// the cluster in use.
func (c *Cluster) admit(conn *conn, h header) error {
	id := h.GetHeader().GetClusterId()
	if id == 0 {
		return nil // the answer does not come from an etcd server
	}
	conn.cluster.Store(id)
	if err := c.identity.Admit(clusterName(id), c.serves); err != nil {
		c.forsake(conn, c.opts.RequestTimeout, nil)
		return fmt.Errorf("%w: %w", errStranger, err)
	}
	return nil
}

func clusterName(id uint64) string { return "cluster " + strconv.FormatUint(id, 16) }

// serves reports whether the cluster in use may still serve, that is, whether a connection to one
// of its members is open. While that cluster may serve, even slowly, no other takes its place.
func (c *Cluster) serves() bool {
	current := c.identity.Current()
	var own []*conn
	for _, m := range c.order() {
		if on := m.conn.Load(); on != nil && clusterName(on.cluster.Load()) == current {
			own = append(own, on)
		}
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(c.background), sickAfter)
	defer cancel()
	for _, on := range own {
		resp, err := on.kv.Range(ctx, c.question())
		if err == nil && clusterName(resp.GetHeader().GetClusterId()) == current {
			return true
		}
		if err != nil && (ctx.Err() != nil || !strings.Contains(err.Error(), "Error while dialing")) {
			return true
		}
	}
	return false
}

func (c *Cluster) question() *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte(c.opts.Probe), KeysOnly: true}
}

// Looked reports whether all members were checked and no second cluster is seen. It asks no member.
func (c *Cluster) Looked() bool {
	return !c.identity.looked.Load().IsZero() && c.identity.stray() == nil
}

// stray returns the last error that reported a second cluster. It returns nil if none came in the
// last 10 s (settles), and none since the last check of all members began.
func (i *identity) stray() error {
	since := time.Now().Add(-settles)
	if looked := *i.looked.Load(); looked.Before(since) {
		since = looked
	}
	return i.Err(since)
}

// Certain returns an error if the addresses lead to members of two clusters. It asks all members
// over new connections, because a load balancer or a DNS name may lead new connections to another
// cluster. Later calls ask again at most every 2 s while two clusters are seen, and at most every
// 30 s if the parameter anew is true. Certain does not find a cluster that is down or that only
// other processes reach.
func (c *Cluster) Certain(ctx context.Context, anew bool) error {
	if c.Looked() && !anew {
		return nil
	}
	select {
	case c.identity.looking <- struct{}{}:
	case <-ctx.Done():
		return c.Untouched(ctx.Err())
	}
	defer func() { <-c.identity.looking }()
	every, began := lookEvery, time.Now()
	if c.identity.stray() != nil {
		every = lookAgain
	}
	if began.Sub(*c.identity.looked.Load()) >= every {
		ctx, cancel := context.WithTimeout(ctx, sickAfter)
		defer cancel()
		var work sync.WaitGroup
		for _, m := range c.order() {
			work.Go(func() {
				conn, err := c.login(ctx, m)
				if err != nil {
					return
				}
				defer conn.close(nil)
				q := c.question()
				q.Serializable = true // so that a member without a leader answers too
				if resp, err := conn.kv.Range(ctx, q); err == nil {
					_ = c.admit(conn, resp) // the identity records the result
				}
			})
		}
		work.Wait()
		c.identity.looked.Store(&began)
	}
	return c.identity.stray()
}
