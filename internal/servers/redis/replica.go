package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// startReplica starts a replica, which follows the first server over the proxy e.Link, and
// waits until the replica follows.
func startReplica(ctx context.Context, e *servers.Environment, _ servers.Requirements) error {
	link, err := inject.NewProxy(e.Servers[0].Addr())
	if err != nil {
		return err
	}
	e.AtEnd(link.Close)
	server, err := Start(ctx, &Options{Lines: hostLines})
	if err != nil {
		return err
	}
	e.AtEnd(server.Close)
	e.Link, e.Replica = link, server
	e.Ready = func(ctx context.Context) error { return rejoin(ctx, e) }
	return followClosely(ctx, server.Addr(), link.Addr())
}

// promote makes the server at addr a master, which accepts writes.
func promote(ctx context.Context, addr string) error {
	return Do(ctx, addr, "REPLICAOF", "NO", "ONE")
}

// follow makes the server at addr a replica of the server at the address in master.
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

// followClosely does what follow does, and returns when the master's writes reach the
// replica. After it has sent a copy of its data, the master sends no writes until the
// replica acknowledges the copy, up to a second later. A replica that was promoted before
// its acknowledgement lacked all leases of the last 830 ms.
func followClosely(ctx context.Context, addr, master string) error {
	if err := follow(ctx, addr, master); err != nil {
		return err
	}
	c := client(master)
	defer c.Close()
	return servers.Retry(ctx, "the replica "+addr+" receives what "+master+" writes", func() error {
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

// awaitLink returns when the replica at addr has received a copy of its master's data.
func awaitLink(ctx context.Context, addr string) error {
	c := client(addr)
	defer c.Close()
	return servers.Retry(ctx, "the replica "+addr+" follows", func() error { return replicates(ctx, c, "master_link_status", "up") })
}

// replicates returns nil if the field called name in a server's INFO replication has the value.
func replicates(ctx context.Context, c *goredis.Client, name, value string) error {
	info, err := c.InfoMap(ctx, "replication").Result()
	if err == nil && info["Replication"][name] != value {
		err = fmt.Errorf("its %s is %q", name, info["Replication"][name])
	}
	return err
}

// rejoin undoes a failover for the next round: the first server becomes the master, and the
// promoted server follows it through the link again.
func rejoin(ctx context.Context, e *servers.Environment) error {
	first := e.Servers[0].Addr()
	return errors.Join(
		promote(ctx, first), e.Link.Heal(), e.Lead(0, (*inject.Proxy).Retarget, first),
		followClosely(ctx, e.Replica.Addr(), e.Link.Addr()))
}

// failOver makes the replica whose address is in to the master, in place of the server whose
// address is in from. The failover is planned: writes stall until the replica has all writes.
// The function by, a Retarget or a Lead, leads the hosts to the new master.
func failOver(ctx context.Context, e *servers.Environment, from, to string, by inject.Leading) error {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return err
	}
	// The master regards a replica as online only some time after the replica's link is up.
	err = servers.Retry(ctx, from+" hands over to "+to, func() error { return Do(ctx, from, "FAILOVER", "TO", host, port) })
	if err != nil {
		return err
	}
	c := client(to)
	defer c.Close()
	err = servers.Retry(ctx, to+" leads", func() error { return replicates(ctx, c, "role", "master") })
	return errors.Join(err, e.Lead(0, by, to), awaitLink(ctx, from))
}

// failForth returns a step that makes a planned failover to the replica.
func failForth(by inject.Leading) servers.Step {
	return func(ctx context.Context, e *servers.Environment, _ int) error {
		return failOver(ctx, e, e.Servers[0].Addr(), e.Replica.Addr(), by)
	}
}

// failBack returns a step that makes a planned failover back to the first server.
func failBack(by inject.Leading) servers.Step {
	return func(ctx context.Context, e *servers.Environment, _ int) error {
		first, second := e.Servers[0].Addr(), e.Replica.Addr()
		if err := failOver(ctx, e, second, first, by); err != nil {
			return err
		}
		return errors.Join(e.Link.Heal(), followClosely(ctx, second, e.Link.Addr()))
	}
}

// sentinelMaster is the name of the master in Sentinel.
const sentinelMaster = "main"

// sentinelReplicas is the number of replicas, one more than grants wait for in any fault.
const sentinelReplicas = 2

// startSentinel starts servers and a Sentinel. The Sentinel tells clients which server
// is the master, and makes another server the master when it is told to.
func startSentinel(ctx context.Context, e *servers.Environment) error {
	// The master serves a replica at once, instead of 5 s after the replica has asked.
	o := &Options{Lines: []string{"repl-diskless-sync-delay 0"}}
	master := ""
	for range sentinelReplicas + 1 {
		s, err := Start(ctx, o)
		if err != nil {
			return err
		}
		e.AtEnd(s.Close)
		if master == "" {
			master = strings.ReplaceAll(s.Addr(), ":", " ")
			o.Lines = append(o.Lines, "replicaof "+master)
		}
	}
	s, err := Start(ctx, &Options{Args: []string{"--sentinel"}, Lines: []string{
		"sentinel monitor " + sentinelMaster + " " + master + " 1",
		"sentinel down-after-milliseconds " + sentinelMaster + " 1000",
		"sentinel failover-timeout " + sentinelMaster + " 6000"}})
	if err != nil {
		return err
	}
	e.AtEnd(s.Close)
	e.Config["address"], e.Config["sentinel_master"] = s.Addr(), sentinelMaster
	// After a failover, Sentinel takes up to 10 s to make the old master a replica.
	e.Ready = func(ctx context.Context) error { return awaitMaster(ctx, e, "", sentinelReplicas) }
	return e.Ready(ctx)
}

// sentinelFailOver makes Sentinel promote a replica, by a planned failover. It
// returns when Sentinel names another master and the other replicas follow that
// master, so that no replica is left to confirm writes of the old master.
func sentinelFailOver(ctx context.Context, e *servers.Environment, _ int) error {
	s := goredis.NewSentinelClient(&goredis.Options{Addr: e.Config["address"]})
	defer s.Close()
	before, err := master(ctx, s)
	if err != nil {
		return err
	}
	// Sentinel looks at replicas every 10 s, and knows no suitable replica before its first look.
	if err := servers.Retry(ctx, "Sentinel begins", func() error { return s.Failover(ctx, sentinelMaster).Err() }); err != nil {
		return err
	}
	return awaitMaster(ctx, e, before, sentinelReplicas-1)
}

// awaitMaster returns when Sentinel names a master other than the one whose address is in
// before, and the given number of replicas follow the named master.
func awaitMaster(ctx context.Context, e *servers.Environment, before string, replicas int) error {
	s := goredis.NewSentinelClient(&goredis.Options{Addr: e.Config["address"]})
	defer s.Close()
	return servers.Retry(ctx, "a master with its replicas", func() error {
		known, err := s.Replicas(ctx, sentinelMaster).Result()
		if err != nil || len(known) < replicas {
			return fmt.Errorf("its Sentinel knows %d of %d replicas: %w", len(known), replicas, err)
		}
		now, err := master(ctx, s)
		if err != nil || now == before {
			return fmt.Errorf("the master is %s: %w", now, err)
		}
		c := client(now)
		defer c.Close()
		linked, err := c.Do(ctx, "WAIT", replicas, 500).Int()
		if err == nil && linked < replicas {
			err = fmt.Errorf("%d of %d replicas follow %s", linked, replicas, now)
		}
		return err
	})
}

func master(ctx context.Context, s *goredis.SentinelClient) (string, error) {
	addr, err := s.GetMasterAddrByName(ctx, sentinelMaster).Result()
	if err != nil {
		return "", fmt.Errorf("redis: Sentinel names no master: %w", err)
	}
	return net.JoinHostPort(addr[0], addr[1]), nil
}
