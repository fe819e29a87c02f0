package cluster

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Stream is what its user has to tell of a stream on one member.
type Stream struct {
	c  *Cluster
	on *conn
	// Cancel ends it.
	Cancel context.CancelFunc
}

// KeepAlive opens a stream of keepalives, by another member when one fails. It ends
// when the cluster gets another leader.
func (c *Cluster) KeepAlive() (client pb.Lease_LeaseKeepAliveClient, s *Stream, err error) {
	for range c.all {
		client, s, err = open(c, func(on *conn) context.Context { return on.leader.Load().ctx },
			func(ctx context.Context, on *conn) (pb.Lease_LeaseKeepAliveClient, error) {
				return on.lease.LeaseKeepAlive(ctx)
			})
		if err == nil || !Failing(err) {
			break
		}
	}
	return client, s, err
}

// Watch opens a stream of watches by the member in use.
func (c *Cluster) Watch() (pb.Watch_WatchClient, *Stream, error) {
	return open(c, func(on *conn) context.Context { return on.ctx },
		func(ctx context.Context, on *conn) (pb.Watch_WatchClient, error) { return on.watch.Watch(ctx) })
}

// open opens a stream by request, which ends with what lifetime returns at the
// latest.
func open[T any](c *Cluster, lifetime func(*conn) context.Context, request func(context.Context, *conn) (T, error)) (T, *Stream, error) {
	defer c.overdue()()
	var none T
	_, on, err := c.session(c.background)
	if err != nil {
		return none, nil, err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(lifetime(on)))
	s := &Stream{c: c, on: on, Cancel: cancel}
	stream, err := request(ctx, on)
	if err != nil {
		cancel()
		s.Ended(err)
		return none, nil, err
	}
	return stream, s, nil
}

// Ended is called with the reason why the stream has ended.
func (s *Stream) Ended(err error) {
	if !s.c.expired(s.on, err) && Failing(err) {
		s.c.avoid(s.on.member)
	}
}

// Admit compares the cluster of an answer with the one in use. With an error it
// counts for nothing, and the stream is to be given up.
func (s *Stream) Admit(answer header) error { return s.c.admit(s.on, answer) }

// LoginExpired is called when the answers say so: the next stream and request
// log in again.
func (s *Stream) LoginExpired() {
	if s.c.opts.Username != "" {
		s.c.forsake(s.on)
	}
}

// Late is called when an answer has not come for so long. It has the members
// compared, or reports that the stream is to be given up: then the next one goes
// to another member.
func (s *Stream) Late(since time.Duration) (giveUp bool) {
	switch {
	case since >= s.c.opts.RequestTimeout:
		s.c.avoid(s.on.member)
		return true
	case since >= slowAfter && s.c.several():
		kit.Wake(s.c.health.wake)
	}
	return false
}

// LateAfter is how often [Stream.Late] should be called.
func (c *Cluster) LateAfter() time.Duration { return min(slowAfter, c.opts.RequestTimeout/4) }
