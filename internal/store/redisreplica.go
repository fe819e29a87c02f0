package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/inject"
)

// startReplica starts a replica of the first server behind a link that can be
// cut, and waits until it follows.
func (e *Environment) startReplica(ctx context.Context, _ Requirements) error {
	link, err := inject.NewProxy(e.servers[0].Addr())
	if err != nil {
		return err
	}
	e.end = append(e.end, link.Close)
	server, err := env.StartRedis(ctx, &env.RedisOptions{Lines: redisLines})
	if err != nil {
		return err
	}
	e.servers = append(e.servers, server)
	e.Setup.Replica, e.Setup.Link = replica{server}, link
	return followClosely(ctx, server.Addr(), link.Addr())
}

// replica is a Redis server that follows another one.
type replica struct{ *env.Server }

func (r replica) Promote(ctx context.Context) error {
	return env.RedisDo(ctx, r.Addr(), "REPLICAOF", "NO", "ONE")
}

func (r replica) Lead(ctx context.Context, addr string) error { return follow(ctx, addr, r.Addr()) }

// follow makes the server at addr a replica of the one at master.
func follow(ctx context.Context, addr, master string) error {
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		return err
	}
	if err := env.RedisDo(ctx, addr, "REPLICAOF", host, port); err != nil {
		return err
	}
	return awaitLink(ctx, addr)
}

// followClosely is follow, and returns when what the master writes comes to the
// replica. After a copy over the socket it sends nothing until the replica has
// acknowledged that, which it does once a second: one that was promoted before
// lacked the leases of 830 ms.
func followClosely(ctx context.Context, addr, master string) error {
	if err := follow(ctx, addr, master); err != nil {
		return err
	}
	c := redis.NewClient(&redis.Options{Addr: master})
	defer c.Close()
	return poll(ctx, "the replica "+addr+" receives what "+master+" writes", func() error {
		conn := c.Conn()
		defer conn.Close()
		if err := conn.Publish(ctx, "lockbench-follows", "").Err(); err != nil {
			return err
		}
		have, err := conn.Wait(ctx, 1, time.Second).Result()
		if err == nil && have == 0 {
			err = errors.New("it has not acknowledged it")
		}
		return err
	})
}

// awaitLink returns when the replica at addr has a copy of its master.
func awaitLink(ctx context.Context, addr string) error {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	return poll(ctx, "the replica "+addr+" follows", func() error { return replicates(ctx, c, "master_link_status", "up") })
}

// poll does something until it succeeds, and fails when it has not within
// [timeout].
func poll(ctx context.Context, what string, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return env.Retry(ctx, what, do)
}

// replicates returns nil when what a server says of its replication is that.
func replicates(ctx context.Context, c *redis.Client, name, value string) error {
	info, err := c.InfoMap(ctx, "replication").Result()
	if err == nil && info["Replication"][name] != value {
		err = fmt.Errorf("its %s is %q", name, info["Replication"][name])
	}
	return err
}

// rejoin brings the roles of a failover back for the next round: what was
// promoted follows the first server through the link.
func (e *Environment) rejoin(ctx context.Context) error {
	r, ok := e.Setup.Replica.(replica)
	if !ok {
		return nil
	}
	first := e.servers[0].Addr()
	return errors.Join(
		env.RedisDo(ctx, first, "REPLICAOF", "NO", "ONE"), e.Setup.Link.Heal(), e.lead(0, (*inject.Proxy).Retarget, first),
		followClosely(ctx, r.Addr(), e.Setup.Link.Addr()))
}

// failOver lets the replica at to become the master of the one at from, in
// order: writes stall until it has all of them. The hosts are led to it, by a
// Retarget or a Lead.
func (e *Environment) failOver(ctx context.Context, from, to string, by inject.Leading) error {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return err
	}
	// A replica that has its link is online for the master some time later.
	err = poll(ctx, from+" hands over to "+to, func() error { return env.RedisDo(ctx, from, "FAILOVER", "TO", host, port) })
	if err != nil {
		return err
	}
	c := redis.NewClient(&redis.Options{Addr: to})
	defer c.Close()
	err = poll(ctx, to+" leads", func() error { return replicates(ctx, c, "role", "master") })
	return errors.Join(err, e.lead(0, by, to), awaitLink(ctx, from))
}

// failBack is the opposite of a failover to the replica.
func failBack(by inject.Leading) Step {
	return func(ctx context.Context, e *Environment, _ int) error {
		first, second := e.servers[0].Addr(), e.Setup.Replica.Addr()
		if err := e.failOver(ctx, second, first, by); err != nil {
			return err
		}
		return errors.Join(e.Setup.Link.Heal(), followClosely(ctx, second, e.Setup.Link.Addr()))
	}
}
