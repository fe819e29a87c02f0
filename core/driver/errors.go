package driver

import (
	"errors"
	"fmt"
	"time"
)

// These sentinel errors stand for the cases that callers treat differently. A backend wraps the
// native cause together with the sentinel. errors.Is finds the sentinel even in a plugin's error.
var (
	// ErrHeld: another owner holds the lock. An error that wraps ErrHeld is a [*HeldError].
	ErrHeld = errors.New("lock is held")
	// ErrNotHeld: the lock is not held with the owner and token of the request.
	// An error that wraps ErrNotHeld is a [*NotHeldError].
	ErrNotHeld = errors.New("lock is not held by this owner")
	// ErrWithdrawn: the owner was withdrawn, and the store refuses all its requests.
	ErrWithdrawn = errors.New("owner was withdrawn")
	// ErrUnavailable: the store or the plugin did not answer. The outcome of the request is
	// unknown unless the error also wraps ErrNotSent. A later request may succeed.
	ErrUnavailable = errors.New("backend is unavailable")
	// ErrNotSent is wrapped together with ErrUnavailable when it is certain
	// that the store has not received the request and will not receive it.
	ErrNotSent = errors.New("request was not sent")
	// ErrInvalid: an argument of the request is bad; nothing was sent.
	ErrInvalid = errors.New("invalid argument")
	// ErrDenied means that the store refuses this client and has done nothing: wrong password, missing
	// rights, unsafe settings, a read-only server. core gives up if the store has never served the
	// client. Otherwise core repeats the request, because the cause may be temporary: a failover, or a
	// change of passwords.
	ErrDenied = errors.New("backend refuses this client")
	// ErrConfig: the backend's configuration is wrong. As with ErrDenied, core
	// gives up only if the store has never served the client.
	ErrConfig = errors.New("invalid configuration")
	// ErrUnsupported: the backend does not have this capability.
	ErrUnsupported = errors.New("not supported by this backend")
	// ErrClosed: the backend was closed.
	ErrClosed = errors.New("backend is closed")
	// ErrPluginDied means that the plugin process ended and that all leases of
	// its backend ended with it (Properties.SurvivesPlugin is false).
	ErrPluginDied = errors.New("plugin died")
)

// HeldError is the error of an acquire that was refused. Holder has what the store knows about the
// present holder. Holder.TTL is the time after which it makes sense to ask again.
type HeldError struct{ Holder Holder }

func (e *HeldError) Error() string {
	if !e.Holder.Held() {
		return ErrHeld.Error()
	}
	if e.Holder.TTL < 0 {
		return fmt.Sprintf("%v%s, without an end", ErrHeld, e.Holder.by())
	}
	return fmt.Sprintf("%v%s for another %v", ErrHeld, e.Holder.by(), e.Holder.TTL.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// NotHeldError says that a lease is gone. Holder is the present holder of
// the lock, if there is one and the store named it.
type NotHeldError struct{ Holder Holder }

func (e *NotHeldError) Error() string {
	if by := e.Holder.by(); by != "" {
		return fmt.Sprintf("%v: held%s", ErrNotHeld, by)
	}
	return ErrNotHeld.Error()
}

// Is makes errors.Is(err, ErrNotHeld) true.
func (e *NotHeldError) Is(target error) bool { return target == ErrNotHeld }
