package store

import (
	"context"
	"errors"
	"strings"

	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/fault"
)

// asRedis goes through the steps of a start and gives the servers the capabilities of
// those that speak Redis's protocol.
func (e *Environment) asRedis(ctx context.Context, w Requirements, steps []func(context.Context, Requirements) error) (*Environment, error) {
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
	e.Setup.ReadOnly, e.Setup.Exhaust, e.Setup.Memory = s.readOnly, s.exhaust, redisMemory(s.admins)
	return e, nil
}

// hostRule is the hosts' account, as ACL SETUSER takes it.
var hostRule = []string{"on", ">" + hostPassword, "~*", "&*", "+@all"}

func (e *Environment) startRedisServer(ctx context.Context, w Requirements) error {
	wrap, err := e.startClock(ctx, w)
	if err != nil {
		return err
	}
	o := &env.RedisOptions{Wrap: wrap, Lines: redisLines()}
	if w.needs(fault.CapKeeps) {
		o.AppendFsync = env.FsyncAlways
	}
	server, err := env.StartRedis(ctx, o)
	if err == nil {
		e.add(server)
	}
	return err
}

// tellAccount gives servers that were started without it the hosts' account.
func (e *Environment) tellAccount(ctx context.Context, _ Requirements) error {
	args := []any{"ACL", "SETUSER", hostUser}
	for _, word := range hostRule {
		args = append(args, word)
	}
	var errs []error
	for _, server := range e.servers {
		errs = append(errs, env.RedisDo(ctx, server.Addr(), args...))
	}
	return errors.Join(errs...)
}

// redisLines are what every server is configured with: a replica is served at
// once, and hosts have an account.
func redisLines() []string {
	return []string{"repl-diskless-sync-delay 0", "user " + hostUser + " " + strings.Join(hostRule, " ")}
}
