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

// startReplica starts a replica, which replicates the first server through the proxy e.Link.
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

func promote(ctx context.Context, addr string) error {
	return Do(ctx, addr, "REPLICAOF", "NO", "ONE")
}

// follow makes the server at addr a replica of the server at the address in parameter master.
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

// followClosely calls the follow function, and then waits until writes of the master reach the
// replica. The master first sends a copy of its data. It sends no writes until the replica has
// acknowledged the copy, which may take up to a second. In one run, a replica that was promoted too
// early lacked all leases of the last 830 ms.
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

// awaitLink returns when the replica at addr has got a copy of its master's data.
func awaitLink(ctx context.Context, addr string) error {
	c := client(addr)
	defer c.Close()
	return servers.Retry(ctx, "the replica "+addr+" follows", func() error { return replicates(ctx, c, "master_link_status", "up") })
}

// replicates returns nil if the named field of a server's INFO replication has the given value.
func replicates(ctx context.Context, c *goredis.Client, name, value string) error {
	info, err := c.InfoMap(ctx, "replication").Result()
	if err == nil && info["Replication"][name] != value {
		err = fmt.Errorf("its %s is %q", name, info["Replication"][name])
	}
	return err
}

// rejoin undoes a failover before the next run. It makes the first server the master again, and
// makes the promoted server its replica, through the proxy e.Link.
func rejoin(ctx context.Context, e *servers.Environment) error {
	first := e.Servers[0].Addr()
	return errors.Join(
		promote(ctx, first), e.Link.Heal(), e.Lead(0, (*inject.Proxy).Retarget, first),
		followClosely(ctx, e.Replica.Addr(), e.Link.Addr()))
}

// failOver replaces the master at the address from by its replica at the address to. No write is
// lost, because the master stops writes until the replica has all of them. The function by
// (Retarget or Lead) then leads the hosts to the new master.
func failOver(ctx context.Context, e *servers.Environment, from, to string, by inject.Leading) error {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return err
	}
	// The replica's link is up before the master regards the replica as online, so Retry is needed.
	err = servers.Retry(ctx, from+" hands over to "+to, func() error { return Do(ctx, from, "FAILOVER", "TO", host, port) })
	if err != nil {
		return err
	}
	c := client(to)
	defer c.Close()
	err = servers.Retry(ctx, to+" leads", func() error { return replicates(ctx, c, "role", "master") })
	return errors.Join(err, e.Lead(0, by, to), awaitLink(ctx, from))
}

// failForth returns a step that makes a planned failover from the first server to the replica.
func failForth(by inject.Leading) servers.Step {
	return func(ctx context.Context, e *servers.Environment, _ int) error {
		return failOver(ctx, e, e.Servers[0].Addr(), e.Replica.Addr(), by)
	}
}

// failBack returns a step that makes a planned failover from the replica back to the first server.
func failBack(by inject.Leading) servers.Step {
	return func(ctx context.Context, e *servers.Environment, _ int) error {
		first, second := e.Servers[0].Addr(), e.Replica.Addr()
		if err := failOver(ctx, e, second, first, by); err != nil {
			return err
		}
		return errors.Join(e.Link.Heal(), followClosely(ctx, second, e.Link.Addr()))
	}
}

const sentinelMaster = "main"

// sentinelReplicas is the number of replicas. In each fault, a grant waits for at most one of them.
const sentinelReplicas = 2

// startSentinel starts a master, replicas and a Sentinel. The Sentinel tells
// clients which server is the master, and promotes a replica on command.
func startSentinel(ctx context.Context, e *servers.Environment) error {
	// With the default of 5 s, the master would send its data to a new replica only after 5 s.
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
	// After a failover, Sentinel may take 10 s until it makes the old master a replica.
	e.Ready = func(ctx context.Context) error { return awaitMaster(ctx, e, "", sentinelReplicas) }
	return e.Ready(ctx)
}

// sentinelFailOver makes Sentinel promote a replica by a planned failover. It returns when Sentinel
// names the new master and the other replicas follow the new master. From that time on, no replica
// can confirm a write of the old master.
func sentinelFailOver(ctx context.Context, e *servers.Environment, _ int) error {
	s := goredis.NewSentinelClient(&goredis.Options{Addr: e.Config["address"]})
	defer s.Close()
	before, err := master(ctx, s)
	if err != nil {
		return err
	}
	// Sentinel looks for replicas every 10 s. At first it may know no replica to promote.
	if err := servers.Retry(ctx, "Sentinel begins", func() error { return s.Failover(ctx, sentinelMaster).Err() }); err != nil {
		return err
	}
	return awaitMaster(ctx, e, before, sentinelReplicas-1)
}

// awaitMaster returns when Sentinel names a master at another address than the parameter before,
// and the given number of replicas follow this master.
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
