package store

import (
	"context"

	"github.com/lockbench/lockbench/internal/env"
)

// Guard is what refuses writes with an old token to things that are kept in a
// store.
type Guard struct {
	Kind string // of the things, in what is recorded
	// Start starts a server for them, and returns its address.
	Start func(ctx context.Context) (*env.Server, string, error)
	// Open connects to that.
	Open func(address string) (*Guarded, error)
}

// Guarded writes to things. Both kinds of writes return an error wrapping
// fence.ErrStale when a guard refuses.
type Guarded struct {
	Write, WriteBare func(ctx context.Context, thing string, token uint64) error
	Close            func() error
}
