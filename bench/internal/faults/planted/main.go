// Command planted is a plugin that keeps locks in Redis and has one bug, which its configuration
// chooses. Tests run the plugin, and check that lockbench finds each bug. If its file is called
// lockplugin-stranger, it acts as the plugin of a store that lockbench does not know.
package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/serve"
)

func main() {
	if filepath.Base(os.Args[0]) == "lockplugin-stranger" {
		properties.Name = "stranger"
	}
	serve.Main(driver.Spec{
		Name: properties.Name,
		Doc:  "locks with a bug",
		Keys: []driver.Key{
			{Name: "address", Type: driver.TypeString, Required: true, Doc: "host:port"},
			{Name: "bug", Type: driver.TypeString, Default: "none", Doc: "none, pause, token, resurrect, release or early"},
		},
		Properties: properties,
		Open: func(_ context.Context, cfg driver.Config, _ *slog.Logger) (driver.Backend, error) {
			return &backend{bug: cfg["bug"], c: redis.NewClient(&redis.Options{Addr: cfg["address"]})}, nil
		},
	})
}

var properties = driver.Properties{
	Name:    "redis", // it uses the servers of that backend
	Fencing: driver.FencingDurable, Scope: driver.ScopeShared, SurvivesPlugin: true,
	TTLMin: time.Millisecond, TTLStep: time.Millisecond, TTLMax: time.Hour, Durability: "none",
}

type backend struct {
	c   *redis.Client
	bug string
}

// KEYS are the keys of the lock, of the token counter, and of the mark that an owner has withdrawn.
// ARGV are the bug, the owner, the token and the TTL in milliseconds.
var (
	// With the bug "pause", this script grants a lock whose holder has missed a renewal, although the
	// lease still runs. With "early", it grants a lock 80 ms before the holder's lease is over. With
	// "token", it takes tokens from a counter that restarts when the server loses its data.
	acquire = redis.NewScript(`
		if redis.call('EXISTS', KEYS[3]) == 1 then return {-2, 0} end
		local left, ttl = redis.call('PTTL', KEYS[1]), tonumber(ARGV[4])
		local free = left <= 0 or ARGV[1] == 'pause' and left < ttl / 2 or ARGV[1] == 'early' and left < 80
		if not free then return {-1, ARGV[1] == 'early' and left - 80 or left} end
		local token = redis.call('INCR', KEYS[2])
		if ARGV[1] ~= 'token' then
			local now = redis.call('TIME')
			token = math.max(token, now[1] * 1000000 + now[2])
			redis.call('SET', KEYS[2], string.format('%.0f', token))
		end
		redis.call('DEL', KEYS[1])
		redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'token', string.format('%.0f', token))
		redis.call('PEXPIRE', KEYS[1], ARGV[4])
		return {1, token}`)
	// With the bug "resurrect", this script restores a lost lease, even if another owner has the lock.
	// With "release", it always succeeds. Otherwise a refused renewal could tell the owner in time
	// that its key is gone.
	renew = redis.NewScript(`
		local own = redis.call('HGET', KEYS[1], 'owner') == ARGV[2]
		if not own and ARGV[1] == 'release' then return 1 end
		if not own and ARGV[1] ~= 'resurrect' then return 0 end
		redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'token', ARGV[3])
		redis.call('PEXPIRE', KEYS[1], ARGV[4])
		return 1`)
	// With the bug "release", this script deletes the key even if another owner has the lock.
	release = redis.NewScript(`
		if ARGV[3] == '0' then redis.call('SET', KEYS[3], 1, 'EX', 60) end
		local own = redis.call('HGET', KEYS[1], 'owner') == ARGV[2]
		if own or ARGV[1] == 'release' then redis.call('DEL', KEYS[1]) end
		if own or ARGV[3] == '0' then return 1 end
		return 0`)
)

func (b *backend) run(ctx context.Context, s *redis.Script, r driver.Request) *redis.Cmd {
	return s.Run(ctx, b.c, []string{"planted:" + r.Name, "planted-tokens", "planted-tombstone:" + r.Owner},
		b.bug, r.Owner, r.Token, r.TTL.Milliseconds())
}

// unknown is an error that does not tell whether the store has carried out the request.
type unknown struct{ error }

func (unknown) Unwrap() error { return driver.ErrUnavailable }

func (b *backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	res, err := b.run(ctx, acquire, r).Int64Slice()
	switch {
	case err != nil:
		return 0, unknown{err}
	case res[0] == -2:
		return 0, driver.ErrWithdrawn
	case res[0] == -1:
		return 0, &driver.HeldError{Holder: driver.Holder{Name: r.Name, Owner: "another", TTL: time.Duration(res[1]) * time.Millisecond}}
	}
	return uint64(res[1]), nil
}

func (b *backend) Renew(ctx context.Context, r driver.Request) error {
	return heldBy(b.run(ctx, renew, r).Int())
}

func (b *backend) Release(ctx context.Context, r driver.Request) error {
	return heldBy(b.run(ctx, release, r).Int())
}

func (b *backend) Withdraw(ctx context.Context, name, owner string) error {
	return heldBy(b.run(ctx, release, driver.Request{Name: name, Owner: owner}).Int())
}

func heldBy(own int, err error) error {
	switch {
	case err != nil:
		return unknown{err}
	case own == 0:
		return &driver.NotHeldError{}
	}
	return nil
}

func (b *backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	owner, err := b.c.HGet(ctx, "planted:"+name, "owner").Result()
	if err != nil {
		return driver.Holder{}, nil
	}
	return driver.Holder{Name: name, Owner: owner, Waiters: -1}, nil
}

func (b *backend) Proclaim(context.Context, driver.Request) error { return driver.ErrUnsupported }

func (b *backend) Check(ctx context.Context) error { return b.c.Ping(ctx).Err() }
func (b *backend) Properties() driver.Properties   { return properties }
func (b *backend) Close(context.Context) error     { return b.c.Close() }
