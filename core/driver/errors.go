package driver

import (
	"errors"
	"fmt"
	"time"
)

// Sentinels: one for every case that a caller treats differently. A backend
// wraps the native cause beside them. They keep their identity over the wire.
var (
	// ErrHeld: another owner holds the lock. Comes as a [*HeldError].
	ErrHeld = errors.New("lock is held")
	// ErrNotHeld: that owner and token do not hold the lock. Comes as a
	// [*NotHeldError].
	ErrNotHeld = errors.New("lock is not held by this owner")
	// ErrWithdrawn: the owner was withdrawn and is refused for good.
	ErrWithdrawn = errors.New("owner was withdrawn")
	// ErrUnavailable: the store or the plugin did not answer; the outcome of
	// the request is unknown unless the error also wraps ErrNotSent. Trying
	// again may help.
	ErrUnavailable = errors.New("backend is unavailable")
	// ErrNotSent comes beside ErrUnavailable when it is certain that the store
	// never saw the request, nor will.
	ErrNotSent = errors.New("request was not sent")
	// ErrInvalid: the request itself is bad; nothing was sent.
	ErrInvalid = errors.New("invalid argument")
	// ErrDenied means that the store refuses this client, and has done nothing:
	// wrong password, missing rights, unsafe settings, a read-only server. A
	// client that was never served gives up. A client that was served goes on
	// asking, because a failover and a rotation of passwords end.
	ErrDenied = errors.New("backend refuses this client")
	// ErrConfig: the backend's configuration is wrong. As with ErrDenied, only
	// a client that was never served gives up.
	ErrConfig = errors.New("invalid configuration")
	// ErrUnsupported: the backend does not have this capability.
	ErrUnsupported = errors.New("not supported by this backend")
	// ErrClosed: the backend was closed.
	ErrClosed = errors.New("backend is closed")
	// ErrPluginDied means that the plugin process ended, and everything that its
	// backend kept is gone with it (Properties.SurvivesPlugin is false).
	ErrPluginDied = errors.New("plugin died")
)

// HeldError is a refusal that names the holder and says for how long, as far
// as the store knows. Its TTL says when asking again makes sense.
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

// NotHeldError says that a lease is gone, and who holds the lock now, if
// another owner does and the store said so.
type NotHeldError struct{ Holder Holder }

func (e *NotHeldError) Error() string {
	if by := e.Holder.by(); by != "" {
		return fmt.Sprintf("%v: held%s", ErrNotHeld, by)
	}
	return ErrNotHeld.Error()
}

// Is makes errors.Is(err, ErrNotHeld) true.
func (e *NotHeldError) Is(target error) bool { return target == ErrNotHeld }
