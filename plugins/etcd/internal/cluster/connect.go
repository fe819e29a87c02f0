package cluster

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lockbench/lockbench/core/driver"
)

// conn is a connection to one member, with one login.
//
// Note: requests use the generated clients on the connection of clientv3, and not the types KV,
// Lease and Watch of clientv3. Those types wait for a member to come back instead of failing fast
// (K8), repeat reads a hundred times, open a stream for each keepalive, and run a goroutine for
// each watch. This package uses clientv3 only for endpoints and TLS.
//
// Note: clientv3 must not renew an expired login. It sends the expired token with the new login,
// and servers before 3.5 refuse such a login. After each refusal clientv3 logs in again, in a
// recursion, until memory runs out.
type conn struct {
	member *member
	client *clientv3.Client
	link   *grpc.ClientConn
	kv     pb.KVClient
	made   time.Time

	cluster atomic.Uint64 // the cluster id in the last answer; 0 before the first

	ctx    context.Context // context of all requests on the connection
	cancel context.CancelCauseFunc
	leader atomic.Pointer[leader]
}

// A leader value has the context of the requests that a connection makes under one raft leader.
type leader struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// renew makes a new leader value. Requests under the earlier value, if there is one, have the time
// electedGrace to end, and are then given up for the reason why.
func (c *conn) renew(why error) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	if before := c.leader.Swap(&leader{ctx, cancel}); before != nil {
		time.AfterFunc(electedGrace, func() { before.cancel(why) })
	}
}

// session returns the member in use and the connection to it.
func (c *Cluster) session(ctx context.Context) (*member, *conn, error) {
	c.mu.Lock()
	m := c.all[0]
	c.mu.Unlock()
	conn := m.conn.Load()
	if conn != nil && c.background.Err() == nil {
		return m, conn, nil
	}
	conn, err := c.join(ctx, m)
	return m, conn, err
}

// join returns the connection to m. It sends a request to m only if there is a user to log in.
func (c *Cluster) join(ctx context.Context, m *member) (*conn, error) {
	if c.background.Err() != nil {
		return nil, driver.ErrClosed
	}
	select {
	case m.dial <- struct{}{}:
	case <-ctx.Done():
		return nil, c.Untouched(ctx.Err())
	case <-c.background.Done():
		return nil, driver.ErrClosed
	}
	defer func() { <-m.dial }()
	if conn := m.conn.Load(); conn != nil {
		return conn, nil
	}
	conn, err := c.login(ctx, m)
	if err != nil {
		return nil, c.Untouched(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.background.Err() != nil {
		conn.close(nil)
		return nil, driver.ErrClosed
	}
	m.conn.Store(conn)
	return conn, nil
}

// login returns a new connection to m. It logs in if the options name a user and users are enabled.
func (c *Cluster) login(ctx context.Context, m *member) (*conn, error) {
	conn, err := c.connect(m, "")
	if err != nil || c.opts.Username == "" {
		return conn, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.DialTimeout)
	defer cancel()
	defer context.AfterFunc(c.background, cancel)()
	resp, err := pb.NewAuthClient(conn.link).Authenticate(clientv3.WithRequireLeader(ctx), &pb.AuthenticateRequest{
		Name: c.opts.Username, Password: c.opts.Source.Password(),
	})
	if Is(err, rpctypes.ErrAuthNotEnabled) {
		return conn, nil
	}
	conn.close(nil)
	if err != nil {
		return nil, err
	}
	return c.connect(m, resp.GetToken())
}

func (c *Cluster) connect(m *member, token string) (*conn, error) {
	options := []grpc.DialOption{grpc.WithConnectParams(attempts)}
	var names []string // names that the member's certificate may have
	if !strings.HasPrefix(m.endpoint, "unix:") {
		options = append(options, grpc.WithContextDialer(dial))
		if u, err := url.Parse(m.endpoint); err == nil {
			names = []string{u.Hostname()}
		}
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{m.endpoint}, TLS: c.opts.Source.LastingTLSConfig(names), Token: token,
		// grpc pings the member. So it notices dropped packets even while no request is made. grpc allows
		// no shorter interval than 10 s; see redial.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		// clientv3 must not repeat requests. After a server has reported a cancelled context, clientv3
		// would repeat a write that may have been done.
		MaxUnaryRetries: 1,
		DialOptions:     options,
		Context:         c.background, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	link := client.ActiveConnection()
	made := &conn{member: m, client: client, link: link, kv: pb.NewKVClient(link), made: time.Now()}
	made.ctx, made.cancel = context.WithCancelCause(c.background)
	made.renew(nil)
	return made, nil
}

// attempts makes grpc try often to reach a member that is away. By default, grpc's pauses between
// attempts grow to two minutes. An attempt may take 20 s, because the error of an attempt that is
// cut short says less. But the method redial begins another attempt long before that.
//
// Note: grpc's ResetConnectBackoff would end a pause. But in grpc 1.85 it reads a
// map, and the process crashes if another goroutine writes to that map meanwhile.
var attempts = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: downPause / 4, Multiplier: 1.6, Jitter: 0.2, MaxDelay: downPause},
	MinConnectTimeout: 20 * time.Second,
}

// close gives up the requests and streams on the connection for the reason why.
func (c *conn) close(why error) {
	c.cancel(why)
	_ = c.client.Close() // its error says only that it was cancelled
}

// expired reports whether err says that conn's login has expired. If so, it takes conn out of use,
// and the next request logs in again. The failed request had no effect, and must be repeated.
func (c *Cluster) expired(conn *conn, err error) bool {
	over := Is(err, rpctypes.ErrInvalidAuthToken) || Is(err, rpctypes.ErrAuthOldRevision) || Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, ErrWatchRefused)
	if !over || c.opts.Username == "" {
		return false
	}
	c.forsake(conn, c.opts.RequestTimeout, nil)
	return true
}

// forsake takes conn out of use, and reports whether conn was in use. It closes conn after the time
// grace, in which the requests under way may end, for the reason why.
func (c *Cluster) forsake(conn *conn, grace time.Duration, why error) bool {
	used := conn.member.conn.CompareAndSwap(conn, nil)
	if used {
		c.Apart(func() {
			select {
			case <-time.After(grace):
			case <-c.background.Done():
			}
			conn.close(why)
		})
	}
	return used
}

// nextAddress is the time that dial waits for one address of a name before it also tries the next
// address, as in RFC 8305.
const nextAddress = 250 * time.Millisecond

// dial connects to a host:port whose host may be a name with several addresses, some of
// them dead. Package net would try the addresses of one family (IPv4 or IPv6) one after
// another, and might give one dead address more time than a lease lasts.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, ip := range ips {
		ips[i] = net.JoinHostPort(ip, port)
	}
	return dialAny(ctx, ips)
}

// dialAny connects to the first of addrs that answers. If no address does, it
// returns the first error that came.
func dialAny(ctx context.Context, addrs []string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	begin := func(addr string) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		select {
		case results <- result{conn, err}:
		case <-ctx.Done(): // another address was faster
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
	var failed error
	next := time.NewTimer(0)
	defer next.Stop()
	for begun, over := 0, 0; over < len(addrs); {
		select {
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			failed = cmp.Or(failed, r.err)
			over++
			next.Reset(0)
		case <-next.C:
			if begun < len(addrs) {
				go begin(addrs[begun])
				begun++
				next.Reset(nextAddress)
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, failed
}
