package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

func (t target) newClient(links *redisnode.Links, connected func(context.Context, *goredis.Conn) error) (goredis.UniversalClient, error) {
	servers, sentinels, secure := t.settings()
	u, err := redisnode.ClientOptions(servers, t.opts.PoolSize, secure, t.opts.Logger, links, connected)
	if err != nil {
		return nil, err
	}
	u.Addrs, u.DB = t.addrs, t.opts.DB
	u.MasterName = t.opts.SentinelMaster
	if t.opts.SentinelPasswordFile == "" {
		u.SentinelUsername, u.SentinelPassword = t.opts.SentinelUsername, t.opts.SentinelPassword
	}
	switch {
	case t.opts.Cluster:
		// The client may repeat a command only after a redirection; see redisnode.onceCmd.
		u.MaxRedirects = 5
		return goredis.NewClusterClient(u.Cluster()), nil
	case t.opts.SentinelMaster != "":
		return t.failoverClient(u, sentinels, links)
	}
	o := u.Simple()
	o.Network = t.network
	return goredis.NewClient(o), nil
}

// connected checks the server of a new connection before the first request. A restarted or replaced
// server needs new connections, so each server is checked before it grants a lock. The method
// watchPolicy reads the settings that may change on a running server.
func (b *Backend) connected(ctx context.Context, c *goredis.Conn) error {
	s, err := redisnode.ReadServer(ctx, c)
	if b.sentinels != nil && goredis.HasErrorPrefix(err, "NOAUTH") {
		if err = b.loginToSentinel(ctx, c); err == nil {
			s, err = redisnode.ReadServer(ctx, c)
		}
	}
	if err != nil {
		return refused{redisnode.Unsent(redisnode.Explain(err))}
	}
	if err := errors.Join(b.unsafe(s), b.admit(s)); err != nil {
		b.links.Refused()
		return refused{err}
	}
	if db := b.target.opts.DB; db != 0 && b.target.topology == redisnode.Cluster { // go-redis selects none
		if err := c.Select(ctx, db).Err(); err != nil {
			return refused{redisnode.Unsent(redisnode.Explain(err))}
		}
	}
	if s.Sentinel || s.Replica() { // the client asks a replica in a Cluster only for the slots
		return nil
	}
	if err := s.Evicts(b.address()); err != nil {
		b.node.Judge(c, err)
		if b.server.Load() == nil {
			return refused{err} // the first connection, so there is no lease to renew
		}
	}
	if b.server.Swap(&s) == nil {
		b.background.Go(b.watchPolicy)
	}
	return nil
}

func (b *Backend) unsafe(s redisnode.Server) error {
	return s.Unsafe(b.address(), b.target.topology, b.server.Load() != nil)
}

// admit refuses a connection to a second server behind one address while the server in use serves.
// When the server in use no longer serves, admit accepts the second server and gives up all
// connections to the first. In a Cluster, and behind sentinels, admit accepts any server.
func (b *Backend) admit(s redisnode.Server) error {
	if b.target.topology != redisnode.Alone || s.Replica() {
		return nil
	}
	err := b.identity.Admit(s.RunID, func() bool { return b.links.Lead(b.identity.Current()) })
	b.links.Keep(b.identity.Current())
	return err
}

// watchPolicy reads the settings that can change on a running server, again and again until Close.
func (b *Backend) watchPolicy() {
	again := time.NewTicker(b.target.opts.LookEvery)
	defer again.Stop()
	for {
		select {
		case <-b.background.Done():
			return
		case <-again.C:
			b.node.LookAgain(b.background, *b.server.Load(), b.address())
		}
	}
}

// refused wraps an error of the method connected, which refuses a connection. go-redis unwraps this
// error once. Without refused, that would lose the reason.
type refused struct{ error }

func (r refused) Unwrap() []error { return []error{r.error} }

// address returns the store's name for errors.
func (b *Backend) address() string {
	if m := b.target.opts.SentinelMaster; m != "" {
		return "sentinel master " + m
	}
	return strings.Join(b.target.addrs, ",")
}

// Check asks the store, in one round trip, whether it would serve requests. It also returns
// an error if the server refuses the connection for wake-ups; see driver.Backend.
func (b *Backend) Check(ctx context.Context) error {
	err := b.ask(ctx, func() error {
		s, err := b.node.Check(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(b.unsafe(s), s.Evicts(b.address())); err != nil {
			return err
		}
		b.server.Store(&s)
		return errors.Join(b.node.Refusal(), b.checkReplicas(s), b.identity.Recent())
	})
	if err == nil {
		// Only ErrDenied counts. Any other error of the wake-up connection only delays grants.
		if _, e := b.node.Wakeups.Ready(ctx); errors.Is(e, driver.ErrDenied) {
			err = e
		}
	}
	if err != nil {
		return fmt.Errorf("redis: check: %w", err)
	}
	return nil
}

// checkReplicas returns an error if the server s has fewer replicas than must confirm a grant. It
// logs a warning if it has only so many. Then too few are left after a failover, so grants fail
// until the old master is back as a replica. With Sentinel, this takes longer than most leases last.
func (b *Backend) checkReplicas(s redisnode.Server) error {
	wanted := b.target.opts.WaitReplicas
	switch {
	case s.Replicas < wanted:
		return fmt.Errorf("%w: %w: %s has %d replicas and wait_replicas is %d, so nothing is granted; have %d, or a failover ends every lease",
			driver.ErrUnavailable, driver.ErrNotSent, b.address(), s.Replicas, wanted, wanted+1)
	case wanted > 0 && s.Replicas == wanted:
		cmp.Or(b.target.opts.Logger, slog.Default()).Warn("a failover ends every lease: no replica is to spare; have one more than wait_replicas",
			"store", b.address(), "wait_replicas", wanted)
	}
	return nil
}

// ask runs f in a goroutine, because f may outlast ctx. It returns when f returns or ctx ends.
func (b *Backend) ask(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	if !b.background.Go(func() { done <- f() }) {
		return driver.ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: no reply yet: %w", driver.ErrUnavailable, ctx.Err())
	}
}
