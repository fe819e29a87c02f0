package store

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/bench/fault"
	"github.com/lockbench/lockbench/core/driver"
)

const (
	// redlockNodes is how many nodes redlock has: two may fail.
	redlockNodes = 5
	// quarantine is how long a node that has lost its data does not vote, with
	// leases of up to 10 s.
	quarantine = 11 * time.Second
)

func startRedis(ctx context.Context, w Wish) (*Environment, error) {
	switch {
	case w.needs(fault.PowerSentinel):
		return startSentinel(ctx)
	case w.Setting == Cluster || w.needs(fault.PowerSlots):
		e, err := startCluster(ctx)
		if err != nil {
			return nil, err
		}
		return e.asRedis(ctx, w, []func(context.Context, Wish) error{e.account, e.tellAccount})
	}
	e := &Environment{address: byComma, Config: driver.Config{}}
	steps := []func(context.Context, Wish) error{e.account, e.startRedisServer}
	if w.Setting == WithReplica || w.needs(fault.PowerReplica) {
		steps = append(steps, e.startReplica)
	}
	return e.asRedis(ctx, w, steps)
}

func startRedlock(ctx context.Context, w Wish) (*Environment, error) {
	// A node that has lost its data is let in again after max_ttl; the nodes
	// share a machine with each other and with what harms them.
	e := &Environment{address: byComma, Config: driver.Config{"max_ttl": w.TTL.String(), "node_timeout": "100ms"}}
	e.admit = func(ctx context.Context) error {
		return env.Nodes(e.servers).Init(ctx, w.Plugin, "max_ttl="+w.TTL.String(), "node_timeout=100ms")
	}
	steps := []func(context.Context, Wish) error{e.account}
	for range redlockNodes {
		steps = append(steps, e.startRedisServer)
	}
	return e.asRedis(ctx, w, steps)
}

// asRedis goes through the steps of a start and gives the servers the powers of
// those that speak Redis's protocol.
func (e *Environment) asRedis(ctx context.Context, w Wish, steps []func(context.Context, Wish) error) (*Environment, error) {
	for _, step := range steps {
		if err := step(ctx, w); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	s, err := e.newRedisStore(ctx)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.product = s
	e.Scene.ReadOnly, e.Scene.Exhaust, e.Scene.Memory = s.readOnly, s.exhaust, redisMemory(s.admins)
	return e, nil
}

// hostRule is the hosts' account, as ACL SETUSER takes it.
var hostRule = []string{"on", ">" + hostPassword, "~*", "&*", "+@all"}

func (e *Environment) startRedisServer(ctx context.Context, w Wish) error {
	wrap, err := e.startClock(w)
	if err != nil {
		return err
	}
	o := &env.RedisOptions{Wrap: wrap, Lines: redisLines()}
	if w.needs(fault.PowerKeeps) {
		o.AppendFsync = env.FsyncAlways
	}
	server, err := env.StartRedis(ctx, o)
	if err == nil {
		e.add(server)
	}
	return err
}

// tellAccount gives servers that were started without it the hosts' account.
func (e *Environment) tellAccount(ctx context.Context, _ Wish) error {
	args := []any{"ACL", "SETUSER", hostUser}
	for _, word := range hostRule {
		args = append(args, word)
	}
	var errs []error
	for _, server := range e.servers {
		errs = append(errs, redisDo(ctx, server.Addr(), args...))
	}
	return errors.Join(errs...)
}
