package store

import (
	"context"

	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/fault"
)

// startStep starts some servers of an environment, or tells them something.
type startStep func(ctx context.Context, w Requirements) error

// asRedis makes an account for hosts, goes through the steps of a start and gives
// the servers the capabilities of those that speak Redis's protocol.
func (e *Environment) asRedis(ctx context.Context, w Requirements, steps ...startStep) error {
	for _, step := range append([]startStep{e.account}, steps...) {
		if err := step(ctx, w); err != nil {
			return err
		}
	}
	s, err := e.newRedisStore(ctx)
	if err != nil {
		return err
	}
	e.product = s
	e.Setup.ReadOnly, e.Setup.Exhaust, e.Setup.Memory = e.switched(missReplica), e.switched(oneClient), redisMemory(s.admins)
	return nil
}

// redisLines are what every server is configured with: a replica is served at
// once, and hosts have an account.
var redisLines = []string{"repl-diskless-sync-delay 0", "user " + hostUser + " on >" + hostPassword + " ~* &* +@all"}

func (e *Environment) startRedisServer(ctx context.Context, w Requirements) error {
	wrap, err := e.startClock(w)
	if err != nil {
		return err
	}
	o := &env.RedisOptions{Wrap: wrap, Lines: redisLines}
	if w.needs(fault.CapKeeps) {
		o.AppendFsync = env.FsyncAlways
	}
	server, err := env.StartRedis(ctx, o)
	if err == nil {
		e.add(server)
	}
	return err
}
