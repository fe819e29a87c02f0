package servers

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
)

// Operation is something that the operator of a store does in normal work or in an
// emergency.
type Operation struct {
	Name string // "demote"
	// Does describes the operation by a clause. "%s" in it stands for the
	// server, if the operation is done to one server.
	Does string
	// Settings are the settings of the backend that have the operation; empty means all.
	Settings []string
	// Server reports whether the operation is done to one server, and not to the whole store.
	Server bool
	// Lasts has the shortest and longest time until the operation is undone; zero if it is not.
	Lasts [2]time.Duration
	// Stops reports whether the store may serve no host while the operation lasts, but for at
	// most StopsFor unless StopsFor is zero. StopsGrants reports whether the store may grant
	// nothing but still renews. Recovers is how long this may go on after the operation.
	Stops, StopsGrants bool
	StopsFor, Recovers time.Duration
	// Makes are the conditions that the operation makes, under which claims may not hold.
	Makes []claim.Condition

	// Do does the operation. Undo is nil when there is nothing to undo.
	Do, Undo Step

	Forgets bool // the server forgets that it was admitted to vote
}

// Step does something to the servers of e, or to server number n only.
type Step func(ctx context.Context, e *Environment, n int) error

// On returns a step that calls the function do with the environment's Product, a P.
func On[P Product](do func(ctx context.Context, servers P, n int) error) Step {
	return func(ctx context.Context, e *Environment, n int) error { return do(ctx, e.Product.(P), n) }
}

// InTurn returns a step that does the given steps one after the other, even if one fails.
func InTurn(steps ...Step) Step {
	return func(ctx context.Context, e *Environment, n int) error {
		return inject.Each(steps, func(step Step) error { return step(ctx, e, n) })
	}
}

// OnEach returns a step that does the given step to all servers at the same time.
func OnEach(step Step) Step {
	return func(ctx context.Context, e *Environment, _ int) error {
		return inject.AtOnce(len(e.Servers), func(n int) error { return step(ctx, e, n) })
	}
}

// ShiftClock makes the clock of server n differ from the true time by d.
func (e *Environment) ShiftClock(n int, d time.Duration) error {
	e.Shifted = e.Shifted || d != 0
	return e.Clocks[n].Shift(d)
}

// FreezeMember freezes server leader+after, where the numbers begin again after the last server.
func (e *Environment) FreezeMember(ctx context.Context, after int) error {
	leader, err := e.Product.(interface {
		Leader(ctx context.Context) (int, error)
	}).Leader(ctx)
	if err != nil {
		return err
	}
	return e.Servers[(leader+after)%len(e.Servers)].Freeze()
}

// UntilLost bounds times that are long enough for unrenewed leases to end.
var UntilLost = [2]time.Duration{2 * time.Second, 6 * time.Second}

// WhileWatched bounds how long an operator's temporary change usually lasts.
var WhileWatched = [2]time.Duration{50 * time.Millisecond, 5 * time.Second}
