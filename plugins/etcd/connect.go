package etcd

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core/driver"
)

// conn is a connection to the cluster, logged in once.
//
// Note: requests are made with the generated clients on the connection of
// clientv3, not with its KV, Lease and Watch. Those wait for a member to come
// back instead of failing fast (K8), repeat reads a hundred times, open a stream
// for each keepalive, and run a goroutine for each watch. What stays of
// clientv3 is endpoints, balancing and TLS.
//
// Note: nor does clientv3 log in again here when its token has expired. Servers
// before 3.5 refuse even a login that carries an expired token, and then it
// logs in from within its login until the memory is used up.
type conn struct {
	client *clientv3.Client
	kv     pb.KVClient
	lease  pb.LeaseClient
	watch  pb.WatchClient
	server pb.MaintenanceClient
}

// session returns the connection, made by the first who asks. Without a user
// that takes no time; with one it logs in.
func (b *backend) session(ctx context.Context) (*conn, error) {
	if b.ctx.Err() != nil {
		return nil, driver.ErrClosed
	}
	if c := b.conn.Load(); c != nil {
		return c, nil
	}
	select {
	case b.dial <- struct{}{}:
	case <-ctx.Done():
		return nil, b.interrupted(ctx, false)
	case <-b.ctx.Done():
		return nil, driver.ErrClosed
	}
	defer func() { <-b.dial }()
	if c := b.conn.Load(); c != nil {
		return c, nil
	}
	token, err := b.login(ctx)
	if err != nil {
		return nil, b.untouched(err)
	}
	c, err := b.connect(token)
	if err != nil {
		return nil, b.untouched(err)
	}
	b.conn.Store(c)
	return c, nil
}

// login returns a token for the user, on a connection without one; "" where
// there are no users.
func (b *backend) login(ctx context.Context) (string, error) {
	if b.opts.Username == "" {
		return "", nil
	}
	c, err := b.connect("")
	if err != nil {
		return "", err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, b.opts.DialTimeout)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	resp, err := pb.NewAuthClient(c.client.ActiveConnection()).Authenticate(ctx, &pb.AuthenticateRequest{
		Name: b.opts.Username, Password: b.source.Password(),
	})
	if is(err, rpctypes.ErrAuthNotEnabled) {
		return "", nil
	}
	return resp.GetToken(), err
}

func (b *backend) connect(token string) (*conn, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: b.opts.Address, TLS: b.source.LastingTLSConfig(b.opts.hosts()), Token: token,
		// Pings find a connection that is black-holed; grpc allows no shorter
		// interval.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		// One try. The client would send a write again when the server itself
		// reports a cancelled context, and the first may have happened; should
		// it be repeated all the same, the repetition finds the owner's own key
		// (see ghost).
		MaxUnaryRetries: 1,
		Context:         b.ctx, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	link := client.ActiveConnection()
	return &conn{
		client: client, kv: pb.NewKVClient(link), lease: pb.NewLeaseClient(link),
		watch: pb.NewWatchClient(link), server: pb.NewMaintenanceClient(link),
	}, nil
}

func (c *conn) close() { _ = c.client.Close() } // reports only that it was cancelled

// expired gives c up if err says that its login is over: the next session logs
// in again. Nothing came of the request then, and it is to be repeated.
func (b *backend) expired(c *conn, err error) bool {
	over := is(err, rpctypes.ErrInvalidAuthToken) || is(err, rpctypes.ErrAuthOldRevision) || is(err, rpctypes.ErrUserEmpty)
	if !over || b.opts.Username == "" {
		return false
	}
	b.forsake(c)
	return true
}

// forsake takes c out of use, and closes it once what is under way has had its
// time.
func (b *backend) forsake(c *conn) {
	if !b.conn.CompareAndSwap(c, nil) {
		return
	}
	linger := func() {
		select {
		case <-time.After(b.opts.RequestTimeout):
		case <-b.ctx.Done():
		}
		c.close()
	}
	if !b.spawn(linger) {
		c.close()
	}
}

// call makes one request, again after a new login, and tells the health what
// came of it. The error is native.
func call[T any](b *backend, ctx context.Context, request func(context.Context, *conn) (T, error)) (T, error) {
	for again := false; ; again = true {
		c, err := b.session(ctx)
		if err != nil {
			var none T
			return none, err
		}
		bounded, cancel := b.bound(ctx)
		resp, err := request(bounded, c)
		cancel()
		b.health.report(err)
		if again || !b.expired(c, err) {
			return resp, err
		}
	}
}

// learn asks a server for its version and for the shortest TTL that it grants,
// by a lease that it gives back at once. It asks until it was told once.
func (b *backend) learn(ctx context.Context) error {
	select {
	case b.learning <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("etcd: %s: %w: %w", b.at(), driver.ErrUnavailable, ctx.Err())
	}
	defer func() { <-b.learning }()
	if b.Properties().Server != "" {
		return nil
	}
	return b.ask(ctx)
}

func (b *backend) ask(ctx context.Context) error {
	if _, err := b.mint.load(ctx); err != nil {
		return err
	}
	status, err := call(b, ctx, func(ctx context.Context, c *conn) (*pb.StatusResponse, error) {
		return c.server.Status(ctx, &pb.StatusRequest{})
	})
	version := "etcd " + status.GetVersion()
	switch {
	case is(err, rpctypes.ErrPermissionDenied):
		version = "etcd" // some servers, 3.5.30 for one, tell the status to root alone
	case err != nil:
		return b.wrap(err)
	}
	shortest, err := b.leases.request(ctx, time.Second)
	if err != nil {
		return b.wrap(err)
	}
	b.leases.revoke(ctx, shortest.ID)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.properties.Server = version
	b.properties.TTLMin = time.Duration(shortest.TTL) * time.Second
	return nil
}
