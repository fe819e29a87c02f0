package baseline

import (
	"context"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/plugins/redis"
)

// keyPrefix keeps the keys of baselines apart from those of backends, and from
// each other.
const keyPrefix = "lockbench:baseline:"

var inProcessRedis = Baseline{
	Name:    "redis-in-process",
	Doc:     "our redis library without the plugin process",
	Backend: "redis",
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
