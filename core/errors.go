package core

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// These are the sentinel errors of package driver. They are also in package core, so that
// applications need not import package driver. Test for them with errors.Is.
var (
	ErrHeld        = driver.ErrHeld        // another owner holds the lock; see HeldError
	ErrNotHeld     = driver.ErrNotHeld     // the lease is gone; see NotHeldError
	ErrUnavailable = driver.ErrUnavailable // the store or the plugin did not answer; trying again may help
	ErrInvalid     = driver.ErrInvalid     // the request is bad; nothing was sent
	ErrDenied      = driver.ErrDenied      // the store refuses this client; the refusal may end if the store served the client before
	ErrConfig      = driver.ErrConfig      // the backend's configuration is wrong
	ErrUnsupported = driver.ErrUnsupported // the backend does not have this capability
	ErrClosed      = driver.ErrClosed      // the Client was closed
)

// ErrReentrant means that the caller already holds the lock: its ctx ends with a lease of the lock.
// Such a ctx comes from Do, TryDo, Run, [Lease.Context] or [Term.Context]. Locks are not reentrant,
// so the caller would wait for itself. The error also wraps ErrHeld.
//
// If context.WithoutCancel and then context.WithTimeout are applied to such a ctx, the result looks
// as if it ended with the lease. So an acquire with that ctx is refused too while the lease lives.
// Work that goes on after the lease needs a ctx that does not come from the lease's ctx.
var ErrReentrant = errors.New("lock is held by its caller")

// HeldError names the holder of a lock, and the time that its lease has left if that is known.
type HeldError = driver.HeldError

// NotHeldError says that a lease is gone, and names the present holder of the lock if it is known.
type NotHeldError = driver.NotHeldError

// Holder describes a held lock; the zero Holder means that the lock is free.
type Holder = driver.Holder

// Properties are the claims that a backend makes.
type Properties = driver.Properties

// ErrUnreleased means that the function of Do or TryDo has returned nil, but the store has not
// confirmed the release. The lock may stay taken until the time that the error names.
var ErrUnreleased = errors.New("work is done, but its lock may still be taken")

// Causes say why a lease or term ended. Lease.Err, Term.Err and context.Cause
// return them. Test with errors.Is; [CauseName] returns their names.
var (
	// ErrReleased: this process has released the lease or has begun to do so.
	ErrReleased = errors.New("lease was released")
	// ErrExpired: the deadline passed without a renewal, because this process
	// was stopped, its machine was suspended, or the lock has NoRenew.
	ErrExpired = errors.New("lease expired")
	// ErrTaken: another owner holds the lock now.
	ErrTaken = errors.New("lease was taken by another owner")
	// ErrRevoked: the lease vanished from the store before its end, because an operator broke it or
	// the store lost data.
	ErrRevoked = errors.New("lease was revoked: an operator broke it, or the store lost it")
	// ErrUnreachable: the backend did not confirm a renewal before the deadline.
	ErrUnreachable = errors.New("backend was unreachable until the deadline")
	// ErrPluginDied: the plugin process ended, and the backend keeps leases only as long as that
	// process lives.
	ErrPluginDied = driver.ErrPluginDied
	// ErrUnhealthy: the Healthy callback returned an error, or did not return in time.
	ErrUnhealthy = errors.New("holder is unhealthy")
	// ErrMaxHold: the lease was held for the time that MaxHold allows.
	ErrMaxHold = errors.New("lease was held for its longest time")
)

// causeNames lists the causes in the order in which CauseName tests them. ErrPluginDied is tested
// last, because an error with another cause may wrap ErrPluginDied too.
var causeNames = []struct {
	cause error
	name  string
}{
	{ErrReleased, "released"},
	{ErrUnhealthy, "unhealthy"},
	{ErrMaxHold, "max hold"},
	{ErrExpired, "expired"},
	{ErrTaken, "taken"},
	{ErrRevoked, "revoked"},
	{ErrUnreachable, "unreachable"},
	{ErrPluginDied, "plugin died"},
}

// CauseName returns the name of err as the cause of a lease's end:
// "released", "expired", "taken", "revoked", "unreachable", "plugin died",
// "unhealthy" or "max hold". It returns "" if err is nil or not such a cause.
func CauseName(err error) string {
	for _, c := range causeNames {
		if errors.Is(err, c.cause) {
			return c.name
		}
	}
	return ""
}

// Error is the error of every operation of this package. Error says which
// operation failed, on which backend and lock, and why.
type Error struct {
	Op      string // acquire, release, campaign, inspect, ...
	Backend string // name of the backend
	Name    string // name of the lock; the prefix for list; "" for check and close
	Err     error
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s on %s: %s", e.Op, e.Backend, e.cause())
	}
	return fmt.Sprintf("%s %q on %s: %s", e.Op, e.Name, e.Backend, e.cause())
}

// cause returns the text of Err without the parts that e.Error adds. A backend's error names the
// backend, the operation and the lock ("redis: acquire \"jobs\": ..."), because a backend may be
// used without this package. Package core may have put other words before the backend's text.
func (e *Error) cause() string {
	said, rest := "", once(e.Err.Error())
	for {
		before, after, ok := strings.Cut(rest, e.Backend+": ")
		said += before
		if !ok || e.Backend == "" {
			return said + rest[len(before):]
		}
		operation := strings.TrimLeft(after, "abcdefghijklmnopqrstuvwxyz ")
		named, ok := strings.CutPrefix(operation, strconv.Quote(e.Name)+": ")
		if !ok && e.Name == "" {
			named, ok = strings.CutPrefix(after, e.Op+": ")
		}
		switch {
		case ok:
			rest = named
		case said == "", strings.HasSuffix(before, ": "): // rest begins a cause
			rest = after
		default:
			said, rest = said+e.Backend+": ", after
		}
	}
}

// The once function keeps the texts of ErrUnavailable and ErrDenied only where they first appear.
// It also removes the text of ErrNotSent, which only programs need.
func once(text string) string {
	text = strings.ReplaceAll(text, driver.ErrNotSent.Error()+": ", "")
	for _, kind := range []error{ErrUnavailable, ErrDenied} {
		if before, after, ok := strings.Cut(text, kind.Error()+": "); ok {
			text = before + kind.Error() + ": " + strings.ReplaceAll(after, kind.Error()+": ", "")
		}
	}
	return text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// ErrIndeterminate means that the outcome of a request is unknown and could not
// be found out. An error that wraps ErrIndeterminate is an [*IndeterminateError].
var ErrIndeterminate = errors.New("outcome is unknown")

// IndeterminateError says that an acquire or a release has failed with an unknown outcome. The lock
// may be taken until FreeAt.
type IndeterminateError struct {
	// FreeAt is the latest time at which the grant expires, if the store has made a grant by now. It
	// is a time by the clock of this process, so compare it with time.Now.
	FreeAt time.Time
	Err    error // why the outcome could not be found out
}

func (e *IndeterminateError) Error() string {
	return fmt.Sprintf("%v, free at the latest at %s: %v", ErrIndeterminate, e.FreeAt.Format(timeOfDay), e.Err)
}

const timeOfDay = "15:04:05.000"

// Is makes errors.Is(err, ErrIndeterminate) true.
func (e *IndeterminateError) Is(target error) bool { return target == ErrIndeterminate }

// Unwrap returns Err.
func (e *IndeterminateError) Unwrap() error { return e.Err }

// The permanent method reports whether asking again after err is useless (K1). A store that has
// served this client once is expected to serve it again, because refusals during a failover or a
// change of passwords end. So a refusal is permanent only if the store has never served this
// client.
func (c *Client) permanent(err error) bool {
	return final(err) || errors.Is(err, errGrantNumber) || refused(err) && !c.served.Load()
}

// noteServed records that the store serves this client, if the result err of a request shows that.
func (c *Client) noteServed(err error) {
	if (err == nil || errors.Is(err, ErrHeld)) && !c.served.Load() {
		c.served.Store(true)
	}
}

func refused(err error) bool { return errors.Is(err, ErrDenied) || errors.Is(err, ErrConfig) }

// The final function reports whether a repeated call would return err, even if the store recovers.
func final(err error) bool {
	return errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrClosed)
}

// The definite function reports whether err, from an acquire, proves that nothing was granted.
func definite(err error) bool {
	return errors.Is(err, ErrHeld) || errors.Is(err, driver.ErrNotSent) ||
		errors.Is(err, driver.ErrWithdrawn) || refused(err) || final(err)
}

func joinErrors(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}
