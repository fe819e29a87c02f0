package store

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
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
	// Makes are the conditions that it makes, under which claims may not hold.
	Makes []claim.Condition

	// Do does it. Undo is nil when there is nothing to undo.
	Do, Undo Step

	forgets bool // who was admitted to vote
}

// Step is something that is done to the servers of e, or to number n of them.
type Step func(ctx context.Context, e *Environment, n int) error

// on is a step for the servers of one kind.
func on[P product](do func(ctx context.Context, servers P, n int) error) Step {
	return func(ctx context.Context, e *Environment, n int) error { return do(ctx, e.product.(P), n) }
}

// inTurn does several steps, whatever becomes of one.
func inTurn(steps ...Step) Step {
	return func(ctx context.Context, e *Environment, n int) error {
		return inject.Each(steps, func(step Step) error { return step(ctx, e, n) })
	}
}

// onEach does a step to each of the servers.
func onEach(step Step) Step {
	return func(ctx context.Context, e *Environment, _ int) error {
		var err error
		for n := range e.Setup.Servers {
			err = errors.Join(err, step(ctx, e, n))
		}
		return err
	}
}

// change is a step, and how it is taken back.
type change struct{ do, undo Step }

// onEach is the change of each of the servers.
func (c change) onEach() change { return change{onEach(c.do), onEach(c.undo)} }

// switched makes a change a capability of the servers.
func (e *Environment) switched(c change) func(ctx context.Context, on bool) error {
	return func(ctx context.Context, on bool) error {
		if on {
			return c.do(ctx, e, 0)
		}
		return c.undo(ctx, e, 0)
	}
}

// untilLost is long enough for leases to end that are not renewed.
var untilLost = [2]time.Duration{2 * time.Second, 6 * time.Second}

// whileWatched is how long what an operator does is usually there.
var whileWatched = [2]time.Duration{50 * time.Millisecond, 5 * time.Second}
