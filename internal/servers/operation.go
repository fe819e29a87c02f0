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
	// Does is a clause for people; "%s" stands for the server, if the operation is
	// done to one.
	Does string
	// Settings are the settings of the backend that have the operation; none means all.
	Settings []string
	// Server reports whether the operation is done to one server, and not to the store.
	Server bool
	// Lasts bounds the time until the operation is undone; zero for one that is over at once.
	Lasts [2]time.Duration
	// Stops reports whether the store may serve no host while the operation lasts, or
	// for StopsFor at most, if that is not zero. With StopsGrants it may grant
	// nothing, but renews. Recovers is how long that may go on after the end.
	Stops, StopsGrants bool
	StopsFor, Recovers time.Duration
	// Makes are the conditions that it makes, under which claims may not hold.
	Makes []claim.Condition

	// Do does the operation. Undo is nil when there is nothing to undo.
	Do, Undo Step

	Forgets bool // who was admitted to vote
}

// Step does something to the servers of e, or to server number n.
type Step func(ctx context.Context, e *Environment, n int) error

// On is a step for the servers of one kind.
func On[P Product](do func(ctx context.Context, servers P, n int) error) Step {
	return func(ctx context.Context, e *Environment, n int) error { return do(ctx, e.Product.(P), n) }
}

// InTurn does several steps, even if one fails.
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

// FreezeMember freezes the server that comes after places behind the leading one.
func (e *Environment) FreezeMember(ctx context.Context, after int) error {
	leader, err := e.Product.(interface {
		Leader(ctx context.Context) (int, error)
	}).Leader(ctx)
	if err != nil {
		return err
	}
	return e.Servers[(leader+after)%len(e.Servers)].Freeze()
}

// UntilLost is long enough for leases without renewal to end.
var UntilLost = [2]time.Duration{2 * time.Second, 6 * time.Second}

// WhileWatched is how long an operator's change usually lasts.
var WhileWatched = [2]time.Duration{50 * time.Millisecond, 5 * time.Second}
