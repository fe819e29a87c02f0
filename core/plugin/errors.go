package plugin

import (
	"errors"
	"fmt"
	"strings"
)

// Reasons of an [OpenError].
var (
	ErrBadName       = errors.New("not a name of a plugin")
	ErrNotFound      = errors.New("plugin not found")
	ErrNotExecutable = errors.New("plugin is not executable")
	ErrNotPlugin     = errors.New("binary is not a plugin of this kind")
	ErrBackend       = errors.New("plugin is one of another backend")
	ErrExhausted     = errors.New("the host has run out of a resource that a start needs")
	ErrUnsafe        = errors.New("plugin could be replaced by any user")
	ErrPrivileged    = errors.New("plugin would have more privileges than its host")
	ErrChecksum      = errors.New("plugin has a wrong checksum")
	ErrNoChecksum    = errors.New("plugin has no checksum on file")
	ErrVersion       = errors.New("plugin speaks another protocol version")
	ErrStdout        = errors.New("plugin printed something else than its handshake")
	ErrCrashed       = errors.New("plugin crashed at start")
	ErrHung          = errors.New("plugin did not start in time")
	ErrNoMTLS        = errors.New("plugin cannot do mutual TLS")
)

// OpenError says why a plugin could not be started. Reason is one of the
// errors of this package, and what errors.Is compares with.
type OpenError struct {
	Name   string // of the backend
	Path   string // of the binary, "" when none was found
	Reason error
	Detail string
	Stderr []string // the last lines that the plugin wrote, without secrets
	Cause  error    // nil, or what else the error is: a ctx error, for example
}

func (e *OpenError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plugin %q", e.Name)
	if e.Path != "" {
		fmt.Fprintf(&b, " (%s)", e.Path)
	}
	fmt.Fprintf(&b, ": %v", e.Reason)
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	if len(e.Stderr) > 0 {
		fmt.Fprintf(&b, "; last lines on its standard error: %q", strings.Join(e.Stderr, "\n"))
	}
	return b.String()
}

// Unwrap gives Reason and, where there is one, Cause.
func (e *OpenError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}
