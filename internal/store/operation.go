package store

import (
	"context"
	"time"
)

// Operation is something that the operator of a store does on an ordinary or a
// bad day.
type Operation struct {
	Name string // "redis-demote"; where it is listed, without the store
	// Does is a clause for people; "%s" stands for the server, where it is done to
	// one.
	Does string
	// Settings are those of the backend in which it is known; none means all.
	Settings []string
	// Server reports whether it is done to one server; else it is done to the store.
	Server bool
	// Lasts bounds the time until it is undone; zero for one that is over at once.
	Lasts [2]time.Duration
	// Stops reports whether the store may serve nobody while it lasts, or for
	// StopsFor at most, if that is not zero; StopsGrants, whether it may grant
	// nothing, and renews. Recovers is for how long after its end.
	Stops, StopsGrants bool
	StopsFor, Recovers time.Duration
	// Makes are the conditions under which claims do not hold, by the names that
	// package claim has for them.
	Makes []string

	// Do does it to server number n. Undo is nil when there is nothing to undo.
	Do   func(ctx context.Context, e *Environment, n int) error
	Undo func(ctx context.Context, e *Environment, n int) error
}
