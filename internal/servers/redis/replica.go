package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// startReplica starts a replica of the first server behind a link that can be
// cut, and waits until it follows.
func startReplica(ctx context.Context, e *servers.Environment, _ servers.Requirements) error {
	link, err := inject.NewProxy(e.All[0].Addr())
	if err != nil {
		return err
	}
	e.AtEnd(link.Close)
	server, err := Start(ctx, &Options{Lines: hostLines})
	if err != nil {
		return err
	}
	e.All = append(e.All, server)
	e.Setup.Replica, e.Setup.Link = replica{server}, link
	e.Ready = func(ctx context.Context) error { return rejoin(ctx, e) }
	return followClosely(ctx, server.Addr(), link.Addr())
}

// replica is a Redis server that follows another one.
type replica struct{ *servers.Server }

func (r replica) Promote(ctx context.Context) error {
	return Do(ctx, r.Addr(), "REPLICAOF", "NO", "ONE")
}

func (r replica) Lead(ctx context.Context, addr string) error { return follow(ctx, addr, r.Addr()) }

// follow makes the server at addr a replica of the one at master.
func follow(ctx context.Context, addr, master string) error {
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		return err
	}
	if err := Do(ctx, addr, "REPLICAOF", host, port); err != nil {
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
	c := goredis.NewClient(&goredis.Options{Addr: master})
	defer c.Close()
	return servers.Poll(ctx, "the replica "+addr+" receives what "+master+" writes", func() error {
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
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	defer c.Close()
	return servers.Poll(ctx, "the replica "+addr+" follows", func() error { return replicates(ctx, c, "master_link_status", "up") })
}

// replicates returns nil when what a server says of its replication is that.
func replicates(ctx context.Context, c *goredis.Client, name, value string) error {
	info, err := c.InfoMap(ctx, "replication").Result()
	if err == nil && info["Replication"][name] != value {
		err = fmt.Errorf("its %s is %q", name, info["Replication"][name])
	}
	return err
}

// rejoin brings the roles of a failover back for the next round: what was
// promoted follows the first server through the link.
func rejoin(ctx context.Context, e *servers.Environment) error {
	first := e.All[0].Addr()
	return errors.Join(
		Do(ctx, first, "REPLICAOF", "NO", "ONE"), e.Setup.Link.Heal(), e.Lead(0, (*inject.Proxy).Retarget, first),
		followClosely(ctx, e.Setup.Replica.Addr(), e.Setup.Link.Addr()))
}

// failOver lets the replica at to become the master of the one at from, in
// order: writes stall until it has all of them. The hosts are led to it, by a
// Retarget or a Lead.
func failOver(ctx context.Context, e *servers.Environment, from, to string, by inject.Leading) error {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return err
	}
	// A replica that has its link is online for the master some time later.
	err = servers.Poll(ctx, from+" hands over to "+to, func() error { return Do(ctx, from, "FAILOVER", "TO", host, port) })
	if err != nil {
		return err
	}
	c := goredis.NewClient(&goredis.Options{Addr: to})
	defer c.Close()
	err = servers.Poll(ctx, to+" leads", func() error { return replicates(ctx, c, "role", "master") })
	return errors.Join(err, e.Lead(0, by, to), awaitLink(ctx, from))
}

// failBack is the opposite of a failover to the replica.
func failBack(by inject.Leading) servers.Step {
	return func(ctx context.Context, e *servers.Environment, _ int) error {
		first, second := e.All[0].Addr(), e.Setup.Replica.Addr()
		if err := failOver(ctx, e, second, first, by); err != nil {
			return err
		}
		return errors.Join(e.Setup.Link.Heal(), followClosely(ctx, second, e.Setup.Link.Addr()))
	}
}
