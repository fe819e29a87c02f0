// Package redis is the backend on one Redis or Valkey master, alone, behind
// Sentinel, or in a Cluster.
//
// A lock is a string key with an expiry, taken by SET NX PX in a script that
// mints the fencing token in the same step: the next higher number, and at
// least the server's clock in microseconds, so that tokens go on rising when
// the data is lost. The key's value has the owner, the token, the label and
// the published value, and is compared before anything is changed. This is the
// pattern of https://redis.io/docs/latest/commands/set/ with a token.
//
// What it cannot promise: replication is asynchronous, so a failover may lose
// a grant, and with it the newest token: the next one is higher only as far as
// the promoted server's clock is not behind. WaitReplicas makes that rarer. A
// server that syncs its log every second may lose the last second by a crash.
// Where two holders would do harm, the resource has to check tokens.
//
// Waiters queue in the store, first in first out over all hosts. A release grants
// the lock to the first in the same step, for half a second, and tells it by
// pub/sub, in a Cluster too. Foreign holders of the same key (SET NX PX by any
// client) exclude and are excluded; no waiter is told when they release.
package redis

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// The bounds of a lease's TTL. Redis counts whole milliseconds. A TTL near the
// minimum is only for tests: it needs a renewal every few milliseconds.
const (
	TTLMin  = 10 * time.Millisecond
	TTLStep = time.Millisecond
	TTLMax  = 24 * time.Hour
)

// Spec describes the backend to serve.Main and to in-process users.
var Spec = driver.Spec{
	Name:       "redis",
	Doc:        "locks on one Redis or Valkey master, alone, behind Sentinel, or in a Cluster",
	Keys:       kit.KeysOf(Options{}),
	Properties: properties("unknown", ""),
	Open: func(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
		o := Options{Logger: log}
		kit.Decode(cfg, &o)
		return open(o)
	},
}

func properties(durability, server string) driver.Properties {
	return driver.Properties{
		Name:           "redis",
		Fencing:        driver.FencingDurable,
		Scope:          driver.ScopeShared,
		TTLMin:         TTLMin,
		TTLStep:        TTLStep,
		TTLMax:         TTLMax,
		FIFO:           true,
		FirstSpan:      redisnode.FirstSpan,
		TimedTokens:    true,
		Durability:     durability,
		Server:         server,
		SurvivesPlugin: true,
		Capabilities: []driver.Capability{
			driver.CapWaiter, driver.CapObserver, driver.CapWatcher, driver.CapBatcher, driver.CapAdmin, driver.CapStarter,
		},
	}
}
