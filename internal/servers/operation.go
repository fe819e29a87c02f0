package servers

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
)

// Operation is something that the operator of a store does on an ordinary or a
// bad day.
type Operation struct {
	Name string // "demote"
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
	// nothing, and renews. Recovers is how long after its end.
	Stops, StopsGrants bool
	StopsFor, Recovers time.Duration
	// Makes are the conditions that it makes, under which claims may not hold.
	Makes []claim.Condition

	// Do does it. Undo is nil when there is nothing to undo.
	Do, Undo Step

	Forgets bool // who was admitted to vote
}

// Step is something that is done to the servers of e, or to number n of them.
type Step func(ctx context.Context, e *Environment, n int) error

// On is a step for the servers of one kind.
func On[P Product](do func(ctx context.Context, servers P, n int) error) Step {
	return func(ctx context.Context, e *Environment, n int) error { return do(ctx, e.Product.(P), n) }
}

// InTurn does several steps, whatever becomes of one.
func InTurn(steps ...Step) Step {
	return func(ctx context.Context, e *Environment, n int) error {
		return inject.Each(steps, func(step Step) error { return step(ctx, e, n) })
	}
}

// OnEach does a step to each of the servers.
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

// FreezeMember freezes the server that comes so many places after the one that
// leads.
func (e *Environment) FreezeMember(ctx context.Context, after int) error {
	leader, err := e.Product.(interface {
		Leader(ctx context.Context) (int, error)
	}).Leader(ctx)
	if err != nil {
		return err
	}
	return e.Servers[(leader+after)%len(e.Servers)].Freeze()
}

// UntilLost is long enough for leases to end that are not renewed.
var UntilLost = [2]time.Duration{2 * time.Second, 6 * time.Second}

// WhileWatched is how long what an operator does is usually there.
var WhileWatched = [2]time.Duration{50 * time.Millisecond, 5 * time.Second}
