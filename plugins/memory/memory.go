// Package memory is the reference backend: a store in the memory of one process. It shows what the
// contract in core/driver requires, without the details of a real store. It also serves examples
// and tests, and its plugin shows what the plugin protocol costs.
//
// Leases end with the process. Hosts exclude each other only if they share one [Store]. Each plugin
// process has a separate Store, so two hosts with separate plugins do not exclude each other.
package memory

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

const (
	// placeFor is the time that a waiter keeps its queue place after its last Wait or TryAcquire.
	placeFor = 2 * time.Second
	// firstSpan is the time for which the store grants a lock to a waiter, until the waiter confirms
	// the grant. It is short, because the waiter may be dead.
	firstSpan = 500 * time.Millisecond
	// tombstoneFor is the time for which the store refuses a withdrawn owner.
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

// The fencing class is durable and not strict, because the last token is lost when the process
// ends. The next process takes its first token from the wall clock, so tokens keep rising unless
// the wall clock was turned back.
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
