package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// Options say how [Open] finds and runs a plugin. Nil and zero fields mean
// the documented defaults.
type Options struct {
	// Config is the backend's configuration. [Describe] returns the keys that a backend knows.
	Config driver.Config
	// Path is the path of the binary, which may have any name. If Path is "", Open looks for
	// lockplugin-NAME in Dirs, beside the running executable, and in PATH, in this order. Open refuses
	// a binary that any user of the machine could replace, and a plugin that reports a backend name
	// other than NAME.
	Path string
	Dirs []string
	// Checksums is the path of a file in the format of sha256sum. If Checksums is set, the file
	// must list the binary's base name with the binary's SHA-256 sum.
	Checksums string
	// NoMTLS turns mutual TLS off, for plugins in languages whose go-plugin library does not support
	// it. Without TLS, only the permissions of the socket's directory keep other users out.
	NoMTLS bool
	// Logger gets the plugin's log lines, at the levels that the plugin gave them. A separate
	// goroutine calls Logger, and only Close and a failing Open wait for it, for at most half a
	// second. While Logger blocks, about 1 MiB of lines is queued. Further lines are dropped, and
	// their number is logged later. Default: slog.Default().
	Logger *slog.Logger
	// StartTimeout bounds the start of a plugin, including its
	// configuration. StartTimeout must not be negative. Default 5 s.
	StartTimeout time.Duration
	// OnHostDeath says what the plugin does with the leases of this process when this process dies. By
	// default, the plugin releases these leases at once.
	OnHostDeath Policy
	// Protocol is the version of the protocol between host and plugin. Version 1 makes one gRPC call
	// per operation. Version 2 sends operations over a separate socket, many in one write. The default
	// 0 means the highest version that the plugin supports.
	Protocol int
	// Env lists variables ("KEY=value") that the plugin gets in addition to
	// the few that it inherits: paths, time zone, language, TLS roots, Go
	// runtime settings, and the files for profiles.
	Env []string
}

// Policy says what happens to the leases of a dead host.
type Policy struct {
	// Abandon makes the plugin release nothing, so that the leases expire with their TTL.
	Abandon bool
	// Delay is the time between the host's death and the release of its leases. During this time,
	// writes in flight and child processes of the host can finish. Delay must not be negative. The
	// plugin renews the leases during the delay, so Delay may exceed their TTL. If the plugin ends
	// too, or cannot reach the store, the leases expire with their TTL.
	Delay time.Duration
}

const (
	defaultStartTimeout = 5 * time.Second
	// callTimeout is the time limit for a call to the plugin if the caller's ctx has no deadline.
	callTimeout = 10 * time.Second
)

// Open starts the plugin of the named backend and returns a backend that uses the plugin. If the
// binary is missing or bad, the error is an [*OpenError]. If the configuration is wrong, the error
// wraps [driver.ErrConfig]. After an error, no process is left. If the store is down, Open succeeds
// all the same, and the backend's Check returns an error.
//
// The backend's Properties always declare [driver.CapWatcher], because the host itself reports a
// plugin's death to watchers. The backend's Close returns within about 3 s, or sooner if ctx ends,
// and leaves no process, socket or goroutine, even if the plugin is frozen.
func Open(ctx context.Context, name string, opts *Options) (driver.Backend, error) {
	l, err := newLauncher(name, opts)
	if err != nil {
		return nil, err
	}
	sweepStale()
	p, err := l.launch(ctx)
	if err != nil {
		l.log.flush(ctx)
		return nil, err
	}
	return newBackend(l, p), nil
}

// ProcessOf returns the process id of the plugin behind the backend b. While no plugin process
// runs, or if b does not come from [Open], ok is false.
func ProcessOf(b driver.Backend) (pid int, ok bool) {
	own, isOurs := b.(*backend)
	if !isOurs {
		return 0, false
	}
	p, err := own.live()
	if err != nil {
		return 0, false
	}
	return p.run.pid(), true
}

type launcher struct {
	name    string
	path    string
	opts    Options
	log     *appLog
	secrets *wire.Redactor
}

func newLauncher(name string, opts *Options) (*launcher, error) {
	l := &launcher{name: name, secrets: &wire.Redactor{}}
	if opts != nil {
		l.opts = *opts
	}
	switch {
	case l.opts.StartTimeout < 0:
		return nil, fmt.Errorf("%w: StartTimeout %v is less than 0s", driver.ErrConfig, l.opts.StartTimeout)
	case l.opts.StartTimeout == 0:
		l.opts.StartTimeout = defaultStartTimeout
	}
	if l.opts.OnHostDeath.Delay < 0 {
		return nil, fmt.Errorf("%w: OnHostDeath.Delay %v is negative", driver.ErrConfig, l.opts.OnHostDeath.Delay)
	}
	if v := l.opts.Protocol; v != 0 && !slices.Contains(wire.Versions(), v) {
		return nil, fmt.Errorf("%w: Protocol %d is none of %v", driver.ErrConfig, v, wire.Versions())
	}
	for key, value := range l.opts.Config {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("%w: %q or its value is not UTF-8", driver.ErrConfig, key)
		}
	}
	log := l.opts.Logger
	if log == nil {
		log = slog.Default()
	}
	l.log = newAppLog(log.With("plugin", name))
	path, err := find(name, l.opts)
	if err != nil {
		return nil, err
	}
	l.path = path
	l.secrets.SetConfig(l.opts.Config, looksSecret)
	return l, nil
}

// looksSecret guesses whether the value of a configuration key is secret. Until the plugin has
// reported its secret keys, the host uses this guess to remove secrets from the plugin's log.
func looksSecret(key, value string) bool {
	words := []string{"pass", "secret", "token", "key", "cred", "auth", "dsn"}
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(key, word) }) ||
		strings.Contains(value, "@") // the value may be user:password@host
}

func (l *launcher) versions() []int {
	if l.opts.Protocol != 0 {
		return []int{l.opts.Protocol}
	}
	return wire.Versions()
}

func (l *launcher) setup() wire.Setup {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return wire.Setup{
		Config:  l.opts.Config,
		Host:    strings.ToValidUTF8(fmt.Sprintf("%s:%d", host, os.Getpid()), "\uFFFD"),
		Abandon: l.opts.OnHostDeath.Abandon,
		Delay:   l.opts.OnHostDeath.Delay,
	}
}

func (l *launcher) failed(reason, cause error) *OpenError {
	open := l.fail(reason, "%v", cause)
	open.Cause = cause
	return open
}

func (l *launcher) fail(reason error, format string, args ...any) *OpenError {
	return &OpenError{Name: l.name, Path: l.path, Reason: reason, Detail: wire.Bound(fmt.Sprintf(format, args...))}
}

// These are the reasons of an [OpenError]. Test for them with errors.Is.
var (
	ErrBadName       = errors.New("not a name of a plugin")
	ErrNotFound      = errors.New("plugin not found")
	ErrNotExecutable = errors.New("plugin is not executable")
	ErrNotPlugin     = errors.New("binary is not a plugin of this kind")
	ErrBackend       = errors.New("plugin belongs to another backend")
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

// OpenError says why a plugin could not be started. It wraps Reason, which is an error of this
// package such as [ErrNotFound].
type OpenError struct {
	Name   string // name of the backend
	Path   string // path of the binary, or "" if none was found
	Reason error
	Detail string
	Stderr []string // the last lines that the plugin wrote to standard error, without secrets
	Cause  error    // another error that the OpenError wraps, such as ctx.Err(), or nil
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

// Unwrap returns Reason and, if it is not nil, Cause.
func (e *OpenError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}
