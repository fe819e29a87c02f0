package redlock

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Spec describes the backend to serve.Main and to in-process users.
var Spec = driver.Spec{
	Name:       "redlock",
	Doc:        "locks on a majority of 3 to 9 independent Redis or Valkey masters",
	Keys:       kit.KeysOf(Options{}),
	Properties: Options{}.properties(),
	Open: func(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
		return open(optionsOf(cfg, log))
	},
	Commands: []driver.Command{{
		Name: "init",
		Doc:  "lets the nodes of a fresh cluster vote at once, instead of after max_ttl",
		Run:  initNodes,
	}},
}

func optionsOf(cfg driver.Config, log *slog.Logger) Options {
	o := Options{Logger: log}
	kit.Decode(cfg, &o)
	return o
}

// properties are what a backend with these options claims. FIFO is not among
// it: the queue is on one node, and whoever gets a majority without that node
// overtakes.
func (o Options) properties() driver.Properties {
	kit.Fill(&o)
	return driver.Properties{
		Name:           "redlock",
		Fencing:        driver.FencingQuorum,
		Scope:          driver.ScopeShared,
		TTLMin:         o.ttlMin(),
		TTLStep:        time.Millisecond,
		TTLMax:         o.MaxTTL,
		TimedTokens:    true,
		Durability:     "unknown",
		SurvivesPlugin: true,
		Capabilities: []driver.Capability{
			driver.CapWaiter, driver.CapObserver, driver.CapWatcher, driver.CapBatcher, driver.CapAdmin,
		},
	}
}
