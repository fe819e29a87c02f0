// Package memory is the reference backend: a store in the memory of one process. It shows what the
// contract in core/driver requires, without the details of a real store. It also serves examples
// and tests, and its plugin shows what the plugin protocol costs.
//
// Leases end with the process, so hosts that exclude each other must share one [Store]. Each plugin
// process has its own Store, so two hosts with their own plugins do not exclude each other.
package memory

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

const (
	// placeFor is how long a waiter keeps its place in the queue after its last Wait or TryAcquire.
	placeFor = 2 * time.Second
	// firstSpan is how long an unused grant to a waiter lasts. It is short, because the waiter may
	// be gone.
	firstSpan = 500 * time.Millisecond
	// tombstoneFor is how long a withdrawn owner is refused.
	tombstoneFor = time.Minute
)

// Spec describes the backend. It has no configuration, and each call of Open
// makes a new store.
var Spec = driver.Spec{
	Name: "memory",
	Doc:  "locks in the memory of the plugin process, for examples and tests",
	Open: func(context.Context, driver.Config, *slog.Logger) (driver.Backend, error) {
		return NewStore().Open(), nil
	},
	Properties: properties,
}

// The fencing class is durable, not strict, because tokens last only as long as
// the data, which ends with the process. The next process starts its tokens at
// the wall clock, so they are higher unless the wall clock was turned back.
var properties = driver.Properties{
	Name:       "memory",
	Fencing:    driver.FencingDurable,
	Scope:      driver.ScopeHost,
	TTLMin:     time.Millisecond,
	TTLStep:    time.Millisecond,
	TTLMax:     24 * time.Hour,
	FIFO:       true,
	FirstSpan:  firstSpan,
	Durability: "ends with its process",
	Server:     "in process",
	Capabilities: []driver.Capability{
		driver.CapWaiter, driver.CapObserver, driver.CapWatcher, driver.CapBatcher, driver.CapAdmin,
	},
}
