package store

import (
	"context"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
)

// sentinelReplicas is one more than the faults want grants to wait for.
const sentinelReplicas = 2

// startSentinel starts servers of which Sentinel says to each client which one
// is the master.
func startSentinel(ctx context.Context) (*Environment, error) {
	g, err := env.StartSentinel(ctx, sentinelReplicas)
	if err != nil {
		return nil, err
	}
	e := &Environment{
		Config: driver.Config{"address": g.Sentinel.Addr(), "sentinel_master": env.SentinelMaster},
		settle: g.Settle, admit: g.Settle, end: []func() error{g.Close},
	}
	e.Scene.FailOver = func(ctx context.Context) error { return g.FailOver(ctx, nil) }
	return e, nil
}
