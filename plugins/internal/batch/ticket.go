package batch

import (
	"context"
	"sync/atomic"
)

// Ticket is what the caller of an operation and its sender share: whoever is
// first decides whether it is sent. It is embedded in the operation, and must
// not be copied.
type Ticket struct {
	state atomic.Int32
	done  chan struct{}
}

const (
	queued int32 = iota
	sent
	givenUp
)

// Open makes the Ticket ready for Wait.
func (t *Ticket) Open() { t.done = make(chan struct{}) }

// Claim is called by the sender, and reports whether the operation was not
// given up: from now on it counts as sent.
func (t *Ticket) Claim() bool { return t.state.CompareAndSwap(queued, sent) }

// Unclaim takes a Claim back: nothing was sent, or nothing was done.
func (t *Ticket) Unclaim() { t.state.Store(queued) }

// GiveUp reports whether the operation was not claimed: then it never is.
func (t *Ticket) GiveUp() bool { return t.state.CompareAndSwap(queued, givenUp) }

// GivenUp reports whether GiveUp was successful.
func (t *Ticket) GivenUp() bool { return t.state.Load() == givenUp }

// End ends Wait: the operation is answered. It is called once.
func (t *Ticket) End() { close(t.done) }

// Outcome is what Wait saw.
type Outcome int

const (
	// Answered: End was called.
	Answered Outcome = iota
	// NotSent: the operation was given up, and never will be sent.
	NotSent
	// Unknown: it was sent, and there is no answer yet.
	Unknown
)

// Wait waits for End, or until ctx ends, and then gives the operation up if it
// can.
func (t *Ticket) Wait(ctx context.Context) Outcome {
	select {
	case <-t.done:
		return Answered // also when ctx has ended meanwhile
	default:
	}
	select {
	case <-t.done:
		return Answered
	case <-ctx.Done():
	}
	if t.GiveUp() {
		return NotSent
	}
	return Unknown
}
