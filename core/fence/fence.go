// Package fence checks fencing tokens in the resource that they protect. For each resource name, it
// remembers the highest token that it has seen, and refuses lower tokens.
//
// A lease alone cannot protect a resource. A holder may check its lease and then be paused before
// it writes. During the pause, the lease expires and another holder starts to work. When the paused
// holder wakes up, it writes although its lease has ended. Every grant has a token that is higher
// than the tokens of all earlier grants, so a resource that compares tokens refuses this late
// write.
//
// A new holder must begin with a write or a call of [Guard.Raise]. After that, every write of an
// earlier holder is refused. If a new holder begins with a read instead, the previous holder may
// still write between that read and the new holder's first write. Then the new holder overwrites
// the late write. A holder may use the same token any number of times.
//
// The package imports only the standard library, so a service that acquires no locks can use it.
// The package always refuses the token zero, which no grant has.
package fence

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale means that a token is lower than a token that the resource has
// already seen. An error that wraps ErrStale is a [*StaleError].
var ErrStale = errors.New("stale fencing token")

// ErrNoToken means that a token is zero.
var ErrNoToken = errors.New("fencing token is zero, which no grant has")

// StaleError says which token was refused for which resource.
type StaleError struct {
	Name  string // name of the resource
	Token uint64 // the refused token
	// Highest is the highest token that the resource has seen, or zero if that token is unknown.
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

// Raiser remembers the highest token of each name. If a token is at least as high as every earlier
// token of its name, Raise remembers it and returns nil. If a token is lower than an earlier one,
// the error wraps [ErrStale]. If the token is zero, the error wraps [ErrNoToken].
type Raiser interface {
	Raise(name string, token uint64) error
}

// Guard is a [Raiser] that keeps the tokens in memory, for a resource that only one process uses.
// The zero Guard is ready for use, by any number of goroutines. A Guard keeps one entry for each
// name, and never removes an entry.
//
// Raise alone does not protect a later write, because another holder may write between the call of
// Raise and that write. To check a token and write without such a gap, use [Guard.Do].
type Guard struct {
	mu      sync.Mutex
	highest map[string]uint64
}

// Raise implements [Raiser].
func (g *Guard) Raise(name string, token uint64) error {
	return g.Do(name, token, func() error { return nil })
}

// Do calls the function write if token is not stale, and returns the error of write. No other Do or
// Raise runs until write returns, so no higher token can come between the check and the write.
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
