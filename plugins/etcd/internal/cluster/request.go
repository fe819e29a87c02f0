package cluster

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Txn does req, which may be done twice or not. Its error, like those of all
// requests, is native: see [Cluster.Wrap].
func (c *Cluster) Txn(ctx context.Context, repeatable bool, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := call(c, ctx, repeatable, func(ctx context.Context, on *conn) (*pb.TxnResponse, error) { return on.kv.Txn(ctx, req) })
	if err == nil {
		c.seeTerm(resp.Header.RaftTerm)
	}
	return resp, err
}

// Grant makes a lease with this TTL, in whole seconds, or a longer one.
func (c *Cluster) Grant(ctx context.Context, ttl time.Duration) (*pb.LeaseGrantResponse, error) {
	return call(c, ctx, true, func(ctx context.Context, on *conn) (*pb.LeaseGrantResponse, error) {
		return on.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: int64(ttl / time.Second)})
	})
}

// Revoke gives back a lease without keys, which is left to expire if that fails.
func (c *Cluster) Revoke(ctx context.Context, id int64) {
	_, err := call(c, ctx, true, func(ctx context.Context, on *conn) (*pb.LeaseRevokeResponse, error) {
		return on.lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
	})
	if err != nil {
		c.opts.Logger.Debug("etcd: a lease without keys is left to expire", "error", err)
	}
}

// TimeToLive asks what is left of a lease.
func (c *Cluster) TimeToLive(ctx context.Context, id int64) (*pb.LeaseTimeToLiveResponse, error) {
	return call(c, ctx, true, func(ctx context.Context, on *conn) (*pb.LeaseTimeToLiveResponse, error) {
		return on.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id})
	})
}

// Status asks a member about itself.
func (c *Cluster) Status(ctx context.Context) (*pb.StatusResponse, error) {
	return call(c, ctx, true, func(ctx context.Context, on *conn) (*pb.StatusResponse, error) {
		return on.server.Status(ctx, &pb.StatusRequest{})
	})
}

// call makes one request, again after a new login, and reports what came of it.
// It goes to another member when one could not begin with it, and, if it may be
// done twice, also when one did not answer.
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

// try makes one request on a connection, for as long as that is in use and has
// the same leader.
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
