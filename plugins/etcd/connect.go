package etcd

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core/driver"
)

// conn is a connection to one member, logged in once.
//
// Note: requests are made with the generated clients on the connection of
// clientv3, not with its KV, Lease and Watch. Those wait for a member to come
// back instead of failing fast (K8), repeat reads a hundred times, open a stream
// for each keepalive, and run a goroutine for each watch. What stays of
// clientv3 is endpoints and TLS.
//
// Note: nor does clientv3 log in again here when its token has expired. Servers
// before 3.5 refuse even a login that carries an expired token, and then it
// logs in from within its login until the memory is used up.
type conn struct {
	member *member
	client *clientv3.Client
	kv     pb.KVClient
	lease  pb.LeaseClient
	watch  pb.WatchClient
	server pb.MaintenanceClient

	ctx    context.Context // of all that goes over it
	cancel context.CancelCauseFunc
	era    atomic.Pointer[era]
}

// era is the time of one leader on a connection.
type era struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// renew begins an era and returns the one before, which goes on until it is
// cancelled.
func (c *conn) renew() *era {
	ctx, cancel := context.WithCancelCause(c.ctx)
	return c.era.Swap(&era{ctx, cancel})
}

// session returns the connection in use, made by the first who asks.
func (b *Backend) session(ctx context.Context) (*conn, error) {
	m, c := b.members.use()
	if c != nil && b.ctx.Err() == nil {
		return c, nil
	}
	return b.join(ctx, m)
}

// join returns the connection to m. Without a user that takes no time; with one
// it logs in.
func (b *Backend) join(ctx context.Context, m *member) (*conn, error) {
	if b.ctx.Err() != nil {
		return nil, driver.ErrClosed
	}
	select {
	case m.dial <- struct{}{}:
	case <-ctx.Done():
		return nil, b.interrupted(ctx, false)
	case <-b.ctx.Done():
		return nil, driver.ErrClosed
	}
	defer func() { <-m.dial }()
	b.members.mu.Lock()
	c := m.conn
	b.members.mu.Unlock()
	if c != nil {
		return c, nil
	}
	token, err := b.login(ctx, m)
	if err != nil {
		return nil, b.untouched(err)
	}
	if c, err = b.connect(m, token); err != nil {
		return nil, b.untouched(err)
	}
	b.members.mu.Lock()
	defer b.members.mu.Unlock()
	if b.ctx.Err() != nil {
		c.close()
		return nil, driver.ErrClosed
	}
	m.conn = c
	return c, nil
}

// login returns a token for the user, on a connection without one; "" where
// there are no users.
func (b *Backend) login(ctx context.Context, m *member) (string, error) {
	if b.opts.Username == "" {
		return "", nil
	}
	c, err := b.connect(m, "")
	if err != nil {
		return "", err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, b.opts.DialTimeout)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	resp, err := pb.NewAuthClient(c.client.ActiveConnection()).Authenticate(clientv3.WithRequireLeader(ctx), &pb.AuthenticateRequest{
		Name: b.opts.Username, Password: b.source.Password(),
	})
	if is(err, rpctypes.ErrAuthNotEnabled) {
		return "", nil
	}
	return resp.GetToken(), err
}

func (b *Backend) connect(m *member, token string) (*conn, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{m.endpoint}, TLS: b.source.LastingTLSConfig(hostOf(m.endpoint)), Token: token,
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
	c := &conn{
		member: m, client: client, kv: pb.NewKVClient(link), lease: pb.NewLeaseClient(link),
		watch: pb.NewWatchClient(link), server: pb.NewMaintenanceClient(link),
	}
	c.ctx, c.cancel = context.WithCancelCause(b.ctx)
	c.renew()
	return c, nil
}

func (c *conn) close() {
	c.cancel(nil)
	_ = c.client.Close() // reports only that it was cancelled
}

// expired gives c up if err says that its login is over: the next session logs
// in again. Nothing came of the request then, and it is to be repeated.
func (b *Backend) expired(c *conn, err error) bool {
	over := is(err, rpctypes.ErrInvalidAuthToken) || is(err, rpctypes.ErrAuthOldRevision) || is(err, rpctypes.ErrUserEmpty)
	if !over || b.opts.Username == "" {
		return false
	}
	b.forsake(c)
	return true
}

// broken notes why a stream on c has ended.
func (b *Backend) broken(c *conn, err error) {
	if !b.expired(c, err) && failing(err) {
		b.members.avoid(c.member)
	}
}

// forsake takes c out of use, and closes it once what is under way has had its
// time.
func (b *Backend) forsake(c *conn) {
	if !b.members.detach(c) {
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
// came of it. It goes to another member when one could not begin with it, and,
// if it may be done twice, also when one did not answer. The error is native.
func call[T any](b *Backend, ctx context.Context, twice bool, request func(context.Context, *conn) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.RequestTimeout)
	defer cancel()
	defer b.health.overdue()()
	again := false
	for tries := 1; ; tries++ {
		m, c := b.members.use()
		var resp T
		var err error
		if c == nil || b.ctx.Err() != nil {
			c, err = b.join(ctx, m)
		}
		if err == nil {
			resp, err = try(ctx, c, request)
			b.health.report(err)
			if !again && b.expired(c, err) {
				again = true
				continue
			}
		}
		if err == nil || !failing(err) || b.ctx.Err() != nil {
			return resp, err
		}
		b.members.avoid(m)
		if tries >= len(b.members.all) || ctx.Err() != nil || !twice && !b.harmless(err) {
			return resp, err
		}
	}
}

// try makes one request on c, for as long as that is in use and has the same
// leader.
func try[T any](ctx context.Context, c *conn, request func(context.Context, *conn) (T, error)) (T, error) {
	e := c.era.Load()
	bounded, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	stop := context.AfterFunc(e.ctx, cancel)
	resp, err := request(bounded, c)
	stop()
	cancel()
	if err != nil && ctx.Err() == nil && e.ctx.Err() != nil {
		err = context.Cause(e.ctx)
	}
	return resp, err
}

// learn asks a server for its version and for the shortest TTL that it grants,
// by a lease that it gives back at once. It asks until it was told once.
func (b *Backend) learn(ctx context.Context) error {
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

func (b *Backend) ask(ctx context.Context) error {
	if _, err := b.mint.load(ctx); err != nil {
		return err
	}
	status, err := call(b, ctx, true, func(ctx context.Context, c *conn) (*pb.StatusResponse, error) {
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
