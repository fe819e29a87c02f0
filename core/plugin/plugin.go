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

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// Options say how [Open] finds and runs a plugin. Nil and zero mean the
// documented default.
type Options struct {
	// Config is the backend's configuration; Describe lists its keys.
	Config driver.Config
	// Path is the path of the binary, which may have any name. "" looks for
	// lockplugin-NAME in Dirs, beside the running executable, and in PATH, in
	// this order. Open refuses a binary that any user of the machine could
	// replace, or that turns out to be of another backend than the requested one.
	Path string
	Dirs []string
	// Checksums is a file as sha256sum writes it. When given, the binary must
	// be in it, by its base name, with the right sum.
	Checksums string
	// NoMTLS turns mutual TLS off, for plugins in languages whose go-plugin
	// library has none. The socket is in a directory that only this user can
	// enter, with and without TLS.
	NoMTLS bool
	// Logger gets the plugin's log, at the plugin's levels, on a separate
	// goroutine. Only Close and an Open that fails wait for that goroutine, for
	// half a second. While it blocks, 1 MiB of lines waits for it. More lines
	// are dropped, and their number is logged. Default: slog.Default().
	Logger *slog.Logger
	// StartTimeout bounds a start, until the plugin has taken its
	// configuration. Not negative. Default 5 s.
	StartTimeout time.Duration
	// OnHostDeath says what the plugin does with this host's leases when this
	// process dies. Default: it releases them at once.
	OnHostDeath Policy
	// Protocol is the version of the protocol: 1 makes one call per operation, 2
	// batches them over a separate socket. 0, the default, is the highest
	// version that the plugin speaks.
	Protocol int
	// Env are variables ("KEY=value") that the plugin gets beside the few that
	// it inherits: paths, time zone, language, TLS roots, Go runtime settings,
	// and where to write profiles.
	Env []string
}

// Policy says what happens to the leases of a dead host.
type Policy struct {
	// Abandon leaves them to their TTL.
	Abandon bool
	// Delay, not negative, is how long after the host's death the plugin
	// releases them: for writes in flight and children of the host. The plugin
	// renews them meanwhile, however short their TTL is. If the plugin ends too,
	// or cannot reach the store, they end with their TTL.
	Delay time.Duration
}

const (
	defaultStartTimeout = 5 * time.Second
	// callTimeout bounds a call whose ctx has no deadline.
	callTimeout = 10 * time.Second
)

// Open starts the plugin of the backend called name and returns it as a
// backend. It fails with an [*OpenError] for a binary that is missing or bad,
// and with an error wrapping [driver.ErrConfig] for a wrong configuration, and
// leaves no process then. A store that is down is no error yet: ask Check.
//
// The backend's Properties always declare [driver.CapWatcher]. Its Close
// returns within about 3 s, sooner when ctx ends, and leaves no process,
// socket or goroutine, even when the plugin is frozen.
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

// ProcessOf returns the process id of the plugin behind a backend from
// [Open]. ok is false while there is no process, and for other backends.
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

// launcher knows how to start one plugin, again and again.
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

// looksSecret guesses until the plugin has told which keys are secret. A
// plugin in Go knows it from the start, and keeps secrets out of its log.
func looksSecret(key, value string) bool {
	for _, word := range []string{"pass", "secret", "token", "key", "cred", "auth", "dsn"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return strings.Contains(value, "@") // as in user:password@host
}

// versions are the protocol versions to offer.
func (l *launcher) versions() []int {
	if l.opts.Protocol != 0 {
		return []int{l.opts.Protocol}
	}
	return wire.Versions()
}

// setup returns the settings that the plugin gets after each start.
func (l *launcher) setup() wire.Setup {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return wire.Setup{
		Config:  l.opts.Config,
		Host:    fmt.Sprintf("%s:%d", host, os.Getpid()),
		Abandon: l.opts.OnHostDeath.Abandon,
		Delay:   l.opts.OnHostDeath.Delay,
	}
}

// failed is fail with the error cause.
func (l *launcher) failed(reason, cause error) *OpenError {
	open := l.fail(reason, "%v", cause)
	open.Cause = cause
	return open
}

func (l *launcher) fail(reason error, format string, args ...any) *OpenError {
	return &OpenError{Name: l.name, Path: l.path, Reason: reason, Detail: wire.Bound(fmt.Sprintf(format, args...))}
}

// Reasons of an [OpenError].
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

// OpenError says why a plugin could not be started. Reason is one of the
// errors of this package, and what errors.Is compares with.
type OpenError struct {
	Name   string // of the backend
	Path   string // of the binary, "" when none was found
	Reason error
	Detail string
	Stderr []string // the last lines that the plugin wrote, without secrets
	Cause  error    // nil, or another error that the failure wraps: a ctx error, for example
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
