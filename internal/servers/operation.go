package servers

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
)

// Operation is what the operator of a store does to its servers, in daily work or an emergency.
type Operation struct {
	Name string // "demote"
	// Does describes the operation by a clause, such as "%s is
	// made the leader". The name of the server replaces "%s".
	Does string
	// Settings are the names of the settings in which the operation is possible. Empty means all.
	Settings []string
	// Server reports whether the operation concerns one server. If false, it concerns all servers.
	Server bool
	// Lasts is the shortest and the longest time from Do to Undo. It is zero if Undo is nil.
	Lasts [2]time.Duration
	// Stops is true if the operation can keep the store from serving hosts. If StopsFor is not zero,
	// this effect ends after StopsFor. StopsGrants is true if the operation can stop grants, but not
	// renewals. Recovers is the longest time that these effects last after the operation.
	Stops, StopsGrants bool
	StopsFor, Recovers time.Duration
	// Makes are the conditions that the operation causes. They permit the store to break some rules.
	Makes []claim.Condition

	// Do begins the operation, and Undo ends it. Undo is nil if there is nothing to undo.
	Do, Undo Step

	Forgets bool // the server forgets that it was admitted to vote
}

// Step acts on servers of the environment e. If the operation is on one server, that is server n.
type Step func(ctx context.Context, e *Environment, n int) error

// On returns a step that calls the function do with the environment's Product, which has type P.
func On[P Product](do func(ctx context.Context, servers P, n int) error) Step {
	return func(ctx context.Context, e *Environment, n int) error { return do(ctx, e.Product.(P), n) }
}

// InTurn returns a step that runs the given steps one after the other, even if one of them fails.
func InTurn(steps ...Step) Step {
	return func(ctx context.Context, e *Environment, n int) error {
		return inject.Each(steps, func(step Step) error { return step(ctx, e, n) })
	}
}

// OnEach returns a step that runs the given step on all servers at the same time.
func OnEach(step Step) Step {
	return func(ctx context.Context, e *Environment, _ int) error {
		return inject.AtOnce(len(e.Servers), func(n int) error { return step(ctx, e, n) })
	}
}

// ShiftClock makes the clock of server n show the true time plus d.
func (e *Environment) ShiftClock(n int, d time.Duration) error {
	e.Shifted = e.Shifted || d != 0
	return e.Clocks[n].Shift(d)
}

// FreezeMember freezes the server that stands the given number of places after the leader in
// e.Servers. The first server follows the last.
func (e *Environment) FreezeMember(ctx context.Context, after int) error {
	leader, err := e.Product.(interface {
		Leader(ctx context.Context) (int, error)
	}).Leader(ctx)
	if err != nil {
		return err
	}
	return e.Servers[(leader+after)%len(e.Servers)].Freeze()
}

// UntilLost is a range of durations that are long enough for leases to end without renewals.
var UntilLost = [2]time.Duration{2 * time.Second, 6 * time.Second}

// WhileWatched is the range of times for which an operator's temporary change usually lasts.
var WhileWatched = [2]time.Duration{50 * time.Millisecond, 5 * time.Second}
