package cluster

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Txn sends the transaction req. The parameter repeatable says whether req may be done twice. As
// with every request of a Cluster, the error is the client library's; see [Cluster.Wrap].
func (c *Cluster) Txn(ctx context.Context, repeatable bool, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := call(c, ctx, repeatable, func(ctx context.Context, on *conn) (*pb.TxnResponse, error) { return on.kv.Txn(ctx, req) })
	if err == nil {
		c.seeTerm(resp.Header.RaftTerm)
	}
	return resp, err
}

// Grant makes a lease whose TTL is ttl in whole seconds. The server may grant a longer TTL.
func (c *Cluster) Grant(ctx context.Context, ttl time.Duration) (*pb.LeaseGrantResponse, error) {
	return call(c, ctx, true, func(ctx context.Context, on *conn) (*pb.LeaseGrantResponse, error) {
		return pb.NewLeaseClient(on.link).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: int64(ttl / time.Second)})
	})
}

// TimeToLive asks for the remaining time of the etcd lease with the given id.
func (c *Cluster) TimeToLive(ctx context.Context, id int64) (*pb.LeaseTimeToLiveResponse, error) {
	return call(c, ctx, true, func(ctx context.Context, on *conn) (*pb.LeaseTimeToLiveResponse, error) {
		return pb.NewLeaseClient(on.link).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id})
	})
}

// Status asks the member in use for its status.
func (c *Cluster) Status(ctx context.Context) (*pb.StatusResponse, error) {
	return call(c, ctx, true, func(ctx context.Context, on *conn) (*pb.StatusResponse, error) {
		return pb.NewMaintenanceClient(on.link).Status(ctx, &pb.StatusRequest{})
	})
}

// call makes one request, repeats it after a new login if necessary, and reports its outcome to
// health. It tries another member if the first member could not begin the request, or did not
// answer a repeatable request.
func call[T header](c *Cluster, ctx context.Context, repeatable bool, request func(context.Context, *conn) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.RequestTimeout)
	defer cancel()
	defer c.overdue()()
	again := false
	for tries := 1; ; tries++ {
		var resp T
		m, on, err := c.session(ctx)
		if err == nil {
			resp, err = try(c, ctx, on, request)
			c.Report(err)
			if !again && c.expired(on, err) {
				again = true
				continue
			}
		}
		if err == nil || !Failing(err) || c.background.Err() != nil {
			return resp, err
		}
		c.avoid(m)
		if tries >= len(c.all) || ctx.Err() != nil || !repeatable && !c.Harmless(err) {
			return resp, err
		}
	}
}

// try makes one request on a connection. It gives up when the connection is no
// longer in use or the cluster has another leader.
func try[T header](c *Cluster, ctx context.Context, on *conn, request func(context.Context, *conn) (T, error)) (T, error) {
	leader := on.leader.Load()
	bounded, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	stop := context.AfterFunc(leader.ctx, cancel)
	resp, err := request(bounded, on)
	stop()
	cancel()
	switch {
	case err == nil:
		err = c.admit(on, resp)
	case ctx.Err() == nil && leader.ctx.Err() != nil:
		err = context.Cause(leader.ctx)
	}
	return resp, err
}

// Stream is a handle for a stream to one member. Receive reads its answers, and Cancel ends it.
type Stream struct {
	c      *Cluster
	on     *conn
	Cancel context.CancelFunc
}

// KeepAlive opens a stream of keepalives. If a member fails, KeepAlive tries the next member. The
// stream ends when the cluster gets another leader.
func (c *Cluster) KeepAlive() (client pb.Lease_LeaseKeepAliveClient, s *Stream, err error) {
	for range c.all {
		client, s, err = open(c, func(on *conn) context.Context { return on.leader.Load().ctx },
			func(ctx context.Context, on *conn) (pb.Lease_LeaseKeepAliveClient, error) {
				return pb.NewLeaseClient(on.link).LeaseKeepAlive(ctx)
			})
		if err == nil || !Failing(err) {
			break
		}
	}
	return client, s, err
}

// Watch opens a stream of watches to the member in use.
func (c *Cluster) Watch() (pb.Watch_WatchClient, *Stream, error) {
	return open(c, func(on *conn) context.Context { return on.ctx },
		func(ctx context.Context, on *conn) (pb.Watch_WatchClient, error) {
			return pb.NewWatchClient(on.link).Watch(ctx)
		})
}

// open opens a stream, which ends at the latest with the context that function lifetime returns.
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
		s.ended(err)
		return none, nil, err
	}
	return stream, s, nil
}

// Receive gets the answers on the stream s from the function next, and passes them to the function
// use. It returns the first error of next or use, or an error if another cluster answers. After
// that, the caller must give up the stream.
func Receive[T header](s *Stream, next func() (T, error), use func(T) error) error {
	for {
		answer, err := next()
		if err == nil {
			err = s.c.admit(s.on, answer)
		}
		if err == nil {
			err = use(answer)
		}
		if err != nil {
			s.ended(err)
			return err
		}
	}
}

// ended is called with the error that has ended the stream.
func (s *Stream) ended(err error) {
	if !s.c.expired(s.on, err) && Failing(err) {
		s.c.avoid(s.on.member)
	}
}

// Expect is called when a request is sent on the stream. While the answer is late, health checks
// which members answer. The caller must call the function answered exactly once. If it does not do
// so within the request timeout, giveUp is called, and the next stream goes to another member.
func (s *Stream) Expect(giveUp func()) (answered func()) {
	stop := s.c.overdue()
	timer := time.AfterFunc(s.c.opts.RequestTimeout, func() {
		s.c.avoid(s.on.member)
		giveUp()
	})
	return func() {
		timer.Stop()
		stop()
	}
}
