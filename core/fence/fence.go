// Package fence is the resource's side of a fencing token: it remembers the
// highest token that it has seen for a name and refuses lower ones.
//
// A lease alone cannot protect a resource. Its holder can be paused after its
// last look at the clock. The lease then expires, another holder works, and the
// first one goes on writing. Every grant carries a token that is higher than the
// ones before it, so a resource that compares tokens refuses that late write.
//
// The first act of a new holder must be a write, or [Guard.Raise] alone:
// from then on every earlier holder is stale. A holder that first reads, and
// then writes a result of that, may undo a late write of the holder before
// it, which the resource had no reason yet to refuse. The same token may
// come any number of times.
//
// The package depends on the standard library only and knows nothing of locks,
// so it fits into services that take none. A token of zero, which no grant has,
// is always refused: it would protect nothing.
package fence

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale means that the token is lower than one that the resource has
// already seen. Comes as a [*StaleError].
var ErrStale = errors.New("stale fencing token")

// ErrNoToken means that the token is zero, so there is nothing to compare.
var ErrNoToken = errors.New("fencing token is zero, which no grant has")

// StaleError says which token was refused and why.
type StaleError struct {
	Name  string // of the resource
	Token uint64 // as offered
	// Highest is the highest token seen; zero where the store does not say.
	Highest uint64
}

func (e *StaleError) Error() string {
	if e.Highest == 0 {
		return fmt.Sprintf("%v: %q refuses token %d", ErrStale, e.Name, e.Token)
	}
	return fmt.Sprintf("%v: %q has seen %d and refuses %d", ErrStale, e.Name, e.Highest, e.Token)
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// A Raiser remembers the highest token of each name. Raise returns nil and
// remembers token if it is at least as high as every earlier one, and an error
// wrapping [ErrStale] or [ErrNoToken] if it is not.
type Raiser interface {
	Raise(name string, token uint64) error
}

// Guard is a [Raiser] in memory, for a resource that lives in one process. The
// zero Guard is ready for use, by any number of goroutines. It keeps one entry
// for each name.
//
// Raise before a write is not enough when two writes can overtake each other
// between the check and the effect: use [Guard.Do] for these.
type Guard struct {
	mu      sync.Mutex
	highest map[string]uint64
}

// Raise implements [Raiser].
func (g *Guard) Raise(name string, token uint64) error {
	return g.Do(name, token, func() error { return nil })
}

// Do runs write if token is not stale. No other Do or Raise runs meanwhile, so
// nothing newer can slip in between the check and the write.
func (g *Guard) Do(name string, token uint64, write func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := compare(name, token, g.highest[name]); err != nil {
		return err
	}
	if g.highest == nil {
		g.highest = map[string]uint64{}
	}
	g.highest[name] = token
	return write()
}

func compare(name string, token, highest uint64) error {
	if token == 0 {
		return ErrNoToken
	}
	if token < highest {
		return &StaleError{Name: name, Token: token, Highest: highest}
	}
	return nil
}
