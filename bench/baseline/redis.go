package baseline

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockbench/lockbench/bench/load"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/redis"
)

// keyPrefix keeps the keys of baselines apart from those of backends, and from
// each other.
const keyPrefix = "lockbench:baseline:"

// dialRedis makes the client of all baselines, with the defaults of go-redis,
// from the configuration of the redis backend.
func dialRedis(cfg driver.Config) (goredis.UniversalClient, error) {
	logging.Disable() // what the pool writes to stderr comes back as an error too
	addrs := cfg.List("address")
	if len(addrs) == 1 && strings.Contains(addrs[0], "://") {
		o, err := goredis.ParseURL(addrs[0])
		if err != nil {
			return nil, fmt.Errorf("baseline: the address is no Redis URL that go-redis reads")
		}
		if cfg["username"] != "" {
			o.Username = cfg["username"]
		}
		if cfg["password"] != "" {
			o.Password = cfg["password"]
		}
		return goredis.NewClient(o), nil
	}
	o := &goredis.UniversalOptions{Addrs: addrs, Username: cfg["username"], Password: cfg["password"]}
	if cfg.Bool("tls_enabled") {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return goredis.NewUniversalClient(o), nil
}

// RedisPing returns the floor of everything that asks a Redis server: one PING
// through a pooled client.
func RedisPing(cfg driver.Config) (call func(context.Context) error, end func() error, err error) {
	c, err := dialRedis(cfg)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error { return c.Ping(ctx).Err() }, c.Close, nil
}

var inProcessRedis = Baseline{
	Name:    "redis-in-process",
	Doc:     "our redis library without the plugin process",
	Backend: "redis",
	Fencing: redis.Spec.Properties.Fencing,
	Open:    openInProcessRedis,
}

func openInProcessRedis(ctx context.Context, cfg driver.Config) (load.Locker, error) {
	own := driver.Config{}
	for k, v := range cfg {
		own[k] = v
	}
	own["prefix"] = keyPrefix + "in-process:"
	own, err := redis.Spec.CheckConfig(own) // with the defaults
	if err != nil {
		return nil, err
	}
	b, err := redis.Spec.Open(ctx, own, discard)
	if err != nil {
		return nil, err
	}
	return load.NewCore(b, &core.Options{Logger: discard}), nil
}
