package redis

import (
	"context"
	"fmt"
	"net"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// settings returns the settings of connections to servers and to sentinels. The result secure is
// true if an address requires TLS to the servers.
func (t target) settings() (servers, sentinels Connect, secure bool) {
	servers = t.opts.Connect
	sentinels, secure = servers, t.tls
	apart := t.opts.SentinelTLSEnabled
	switch {
	case apart == nil:
		return servers, sentinels, secure
	case !*apart:
		sentinels = sentinels.WithoutTLS()
	case servers.TLSEnabled != nil && !*servers.TLSEnabled:
		servers, secure = servers.WithoutTLS(), false // TLS in the address is for the sentinels
	}
	sentinels.TLSEnabled = apart
	return servers, sentinels, secure
}

// failoverClient makes the client for a Sentinel group. go-redis dials servers and sentinels with
// one function, but calls dial hooks only for servers. So serverHook marks the calls for servers.
func (t target) failoverClient(u *goredis.UniversalOptions, sentinels Connect, links *redisnode.Links) (goredis.UniversalClient, error) {
	if t.opts.SentinelTLSEnabled == nil {
		return goredis.NewFailoverClient(u.Failover()), nil
	}
	s, err := redisnode.ClientOptions(sentinels, t.opts.PoolSize, false, t.opts.Logger, links, nil)
	if err != nil {
		return nil, err
	}
	dialServer := u.Dialer
	u.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if network == serverNetwork {
			return dialServer(ctx, "tcp", addr)
		}
		return s.Dialer(ctx, network, addr)
	}
	c := goredis.NewFailoverClient(u.Failover())
	c.AddHook(serverHook{})
	return c, nil
}

// serverNetwork is the network name by which the dial function recognizes a server.
const serverNetwork = "server"

type serverHook struct{}

// DialHook implements goredis.Hook.
func (serverHook) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, _, addr string) (net.Conn, error) { return next(ctx, serverNetwork, addr) }
}

func (serverHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (serverHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (o Options) sentinelSource() (*config.Source, error) {
	if o.SentinelPasswordFile == "" {
		return nil, nil
	}
	c := config.Connect{PasswordFile: o.SentinelPasswordFile, DialTimeout: o.DialTimeout, RequestTimeout: o.RequestTimeout}
	s, err := config.NewSource(c, false, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("sentinel_password_file: %w", err)
	}
	return s, nil
}

// loginToSentinel logs in to a sentinel with the current text of the password file. go-redis itself
// takes only a fixed password for sentinels.
func (b *Backend) loginToSentinel(ctx context.Context, c *goredis.Conn) error {
	if user := b.target.opts.SentinelUsername; user != "" {
		return c.AuthACL(ctx, user, b.sentinels.Password()).Err()
	}
	return c.Auth(ctx, b.sentinels.Password()).Err()
}
