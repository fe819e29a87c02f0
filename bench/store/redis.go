package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/bench/fault"
	"github.com/lockbench/lockbench/core/driver"
)

// redlockNodes is how many nodes redlock has: two may fail.
const redlockNodes = 5

func startRedis(ctx context.Context, w Wish) (*Environment, error) {
	switch {
	case w.needs(fault.PowerSentinel):
		return startSentinel(ctx)
	case w.needs(fault.PowerSlots):
		return startCluster(ctx)
	}
	e := &Environment{address: byComma, Config: driver.Config{}}
	if err := e.startRedisServer(ctx, w); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if w.needs(fault.PowerReplica) {
		if err := e.startReplica(ctx); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	e.redisPowers()
	return e, nil
}

func startRedlock(ctx context.Context, w Wish) (*Environment, error) {
	// A node that has lost its data is let in again after max_ttl; the nodes
	// share a machine with each other and with what harms them.
	e := &Environment{address: byComma, Config: driver.Config{"max_ttl": w.TTL.String(), "node_timeout": "100ms"}}
	for range redlockNodes {
		if err := e.startRedisServer(ctx, w); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	e.admit = func(ctx context.Context) error {
		return env.Nodes(e.servers).Init(ctx, w.Plugin, "max_ttl="+w.TTL.String(), "node_timeout=100ms")
	}
	e.redisPowers()
	return e, nil
}

func (e *Environment) startRedisServer(ctx context.Context, w Wish) error {
	wrap, err := e.startClock(w)
	if err != nil {
		return err
	}
	o := &env.RedisOptions{Wrap: wrap, Lines: []string{"repl-diskless-sync-delay 0"}}
	if w.needs(fault.PowerKeeps) {
		o.AppendFsync = env.FsyncAlways
	}
	server, err := env.StartRedis(ctx, o)
	if err == nil {
		e.add(server)
	}
	return err
}

// redisPowers are those of servers that speak Redis's protocol.
func (e *Environment) redisPowers() {
	var admins []*redis.Client
	for _, server := range e.servers[:len(e.Scene.Servers)] {
		// One connection that stays: a server that takes no more still serves it.
		c := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1, ConnMaxIdleTime: -1})
		admins = append(admins, c)
		e.end = append(e.end, c.Close)
	}
	every := func(ctx context.Context, args ...any) error {
		var errs []error
		for _, c := range admins {
			errs = append(errs, c.Do(ctx, args...).Err())
		}
		return errors.Join(errs...)
	}
	e.Scene.Memory = redisMemory(admins)
	e.Scene.ReadOnly = func(ctx context.Context, on bool) error {
		// A master that misses a replica refuses writes, as one whose disk is full
		// does.
		return every(ctx, "CONFIG", "SET", "min-replicas-to-write", map[bool]int{true: 1}[on])
	}
	e.Scene.Exhaust = func(ctx context.Context, on bool) error {
		if !on {
			return every(ctx, "CONFIG", "SET", "maxclients", 10000)
		}
		return errors.Join(
			every(ctx, "CONFIG", "SET", "maxclients", 1),
			every(ctx, "CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES"))
	}
}

// redisDo sends one command to the server at addr.
func redisDo(ctx context.Context, addr string, args ...any) error {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	if err := c.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("%v on %s: %w", args, addr, err)
	}
	return nil
}

// startReplica starts a replica of the first server behind a link that can be
// cut, and waits until it follows.
func (e *Environment) startReplica(ctx context.Context) error {
	link, err := fault.NewProxy(e.servers[0].Addr())
	if err != nil {
		return err
	}
	e.end = append(e.end, link.Close)
	server, err := env.StartRedis(ctx, &env.RedisOptions{Lines: []string{"repl-diskless-sync-delay 0"}})
	if err != nil {
		return err
	}
	e.servers = append(e.servers, server)
	e.Scene.Replica, e.Scene.Link = replica{server}, link
	return follow(ctx, server.Addr(), link.Addr())
}

// replica is a Redis server that follows another one.
type replica struct{ *env.Server }

func (r replica) Promote(ctx context.Context) error {
	return redisDo(ctx, r.Addr(), "REPLICAOF", "NO", "ONE")
}

func (r replica) Lead(ctx context.Context, addr string) error { return follow(ctx, addr, r.Addr()) }

// follow makes the server at addr a replica of the one at master.
func follow(ctx context.Context, addr, master string) error {
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		return err
	}
	if err := redisDo(ctx, addr, "REPLICAOF", host, port); err != nil {
		return err
	}
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		info, err := c.InfoMap(ctx, "replication").Result()
		if err == nil && info["Replication"]["master_link_status"] == "up" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the replica %s does not follow %s: %w", addr, master, err)
		}
	}
}

// rejoin brings the roles of a failover back for the next round: what was
// promoted follows the first server through the link.
func (e *Environment) rejoin(ctx context.Context) error {
	r, ok := e.Scene.Replica.(replica)
	if !ok {
		return nil
	}
	first := e.servers[0].Addr()
	err := errors.Join(redisDo(ctx, first, "REPLICAOF", "NO", "ONE"), e.Scene.Link.Heal())
	for _, paths := range [][]*fault.Proxy{e.Scene.HolderPaths, e.Scene.RivalPaths} {
		err = errors.Join(err, paths[0].Retarget(first))
	}
	return errors.Join(err, follow(ctx, r.Addr(), e.Scene.Link.Addr()))
}
