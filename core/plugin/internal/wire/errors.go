package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// table has each sentinel error with its code on the wire.
var table = []struct {
	sentinel error
	code     lockpb.Error_Code
}{
	{driver.ErrHeld, lockpb.Error_HELD},
	{driver.ErrNotHeld, lockpb.Error_NOT_HELD},
	{driver.ErrWithdrawn, lockpb.Error_WITHDRAWN},
	{driver.ErrUnavailable, lockpb.Error_UNAVAILABLE},
	{driver.ErrNotSent, lockpb.Error_NOT_SENT},
	{driver.ErrInvalid, lockpb.Error_INVALID},
	{driver.ErrDenied, lockpb.Error_DENIED},
	{driver.ErrConfig, lockpb.Error_CONFIG},
	{driver.ErrUnsupported, lockpb.Error_UNSUPPORTED},
	{driver.ErrClosed, lockpb.Error_CLOSED},
	{driver.ErrPluginDied, lockpb.Error_PLUGIN_DIED},
	{context.Canceled, lockpb.Error_CANCELED},
	{context.DeadlineExceeded, lockpb.Error_DEADLINE},
}

// MaxText is the largest size of an error text, in bytes. A longer text is cut,
// because a store may answer with megabytes, and callers keep and log error texts.
const MaxText = 2 << 10

// Bound returns text, or only its beginning and end if it has more than [MaxText]
// bytes. The beginning usually names the failure, and the end its cause.
func Bound(text string) string { return BoundTo(text, MaxText) }

// BoundTo is like Bound, but the parameter most is the limit in bytes. It must be at least 100.
func BoundTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	half := most/2 - 20
	return strings.ToValidUTF8(text[:half], "") + fmt.Sprintf(" ... [%d bytes] ... ", len(text)-2*half) + strings.ToValidUTF8(text[len(text)-half:], "")
}

// EncodeError returns err as a message, or nil if err is nil. The Redactor removes secrets from the
// message's text. The message has a code for every sentinel error that err wraps.
func EncodeError(err error, redact *Redactor) *lockpb.Error {
	if err == nil {
		return nil
	}
	e := &lockpb.Error{Text: Bound(strings.ToValidUTF8(redact.Text(err.Error()), "\uFFFD"))}
	for _, row := range table {
		if errors.Is(err, row.sentinel) {
			e.Codes = append(e.Codes, row.code)
		}
	}
	if held, ok := errors.AsType[*driver.HeldError](err); ok {
		e.Holder = FromHolder(held.Holder)
	} else if notHeld, ok := errors.AsType[*driver.NotHeldError](err); ok {
		e.Holder = FromHolder(notHeld.Holder)
	}
	return e
}

// DecodeError returns the error in the message e, or nil if e is nil.
func DecodeError(e *lockpb.Error) error {
	if e == nil {
		return nil
	}
	err := &remoteError{text: Bound(e.Text)}
	for _, row := range table {
		if slices.Contains(e.Codes, row.code) {
			err.causes = append(err.causes, cause(row.sentinel, e.Holder))
		}
	}
	// If a sentinel error was sent alone, return it without a wrapper.
	if len(err.causes) == 1 && err.causes[0].Error() == err.text {
		return err.causes[0]
	}
	return err
}

func cause(sentinel error, h *lockpb.Holder) error {
	switch sentinel {
	case driver.ErrHeld:
		return &driver.HeldError{Holder: ToHolder(h)}
	case driver.ErrNotHeld:
		return &driver.NotHeldError{Holder: ToHolder(h)}
	}
	return sentinel
}

// remoteError has the text that the plugin sent. It wraps the sentinel error
// of each code that was sent, so that errors.Is finds these sentinels.
type remoteError struct {
	text   string
	causes []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.causes }
