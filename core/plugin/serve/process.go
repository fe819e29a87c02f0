package serve

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/frame"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// closeBudget bounds the backend's Close. The host waits longer before it kills this process.
const closeBudget = 700 * time.Millisecond

// process is the state of this plugin process.
type process struct {
	spec     driver.Spec
	log      *slog.Logger
	redact   *wire.Redactor
	lifeline *lifeline
	prints   *os.File // Configure sets os.Stdout and os.Stderr to this file

	stopProfiles func() // ends the profiles that the host requested, and writes them

	held     atomic.Pointer[tracker] // set by Configure
	setup    wire.Setup              // may be read only after held was set
	sessions sessions
	once     sync.Once
	closed   chan struct{}
	dying    atomic.Bool // hostDied or abandoned was called, and ends the process
}

func newProcess(spec driver.Spec, prints *os.File) *process {
	redact := &wire.Redactor{}
	p := &process{
		spec: spec, prints: prints, redact: redact,
		log:    newLogger(prints, redact),
		closed: make(chan struct{}), stopProfiles: func() {},
	}
	p.sessions.alone = p.abandoned
	return p
}

// Configure implements wire.Host.
func (p *process) Configure(ctx context.Context, s wire.Setup) (wire.Opened, error) {
	// Note: go-plugin has redirected os.Stdout and os.Stderr into a stream that the host does not
	// read. Without this line, a goroutine that prints would block when that stream is full.
	os.Stdout, os.Stderr = p.prints, p.prints
	p.redact.SetConfig(s.Config, secretKey(p.spec))
	cfg, err := p.spec.CheckConfig(s.Config)
	if err != nil {
		return wire.Opened{}, err
	}
	// The backend stays open after Configure returns, so its ctx must not end with that call.
	b, err := p.spec.Open(context.WithoutCancel(ctx), cfg, p.log)
	if err != nil {
		return wire.Opened{}, err
	}
	var secret []string
	for _, k := range p.spec.Keys {
		if k.Secret {
			secret = append(secret, k.Name)
		}
	}
	p.setup = s
	t := newTracker(b)
	p.held.Store(t)
	p.log.Debug("configured", "host", s.Host)
	return wire.Opened{Name: p.spec.Name, Backend: t, SecretKeys: secret}, nil
}

// SessionBegan implements wire.Host.
func (p *process) SessionBegan() (ended func()) { return p.sessions.began() }

func (p *process) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// Close implements wire.Host.
func (p *process) Close(ctx context.Context) error {
	var err error
	p.once.Do(func() {
		if t := p.held.Load(); t != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBudget)
			defer cancel()
			err = t.Close(ctx)
		}
		close(p.closed)
	})
	return err
}

// hostDied releases the dead host's locks, unless Policy.Abandon was set, and ends this process.
func (p *process) hostDied() {
	if !p.dying.CompareAndSwap(false, true) {
		return
	}
	if t := p.held.Load(); t != nil && !p.setup.Abandon && !p.isClosed() {
		p.releaseAll(t)
		// Release may return before the backend wakes the next waiter. Close waits for this wake-up.
		if err := p.Close(context.Background()); err != nil {
			p.log.Warn("host died; closing the backend", "err", err)
		}
	}
	p.exit()
}

// abandoned ends this process, because no host can reach it any more. It releases no lock, because
// the host may be alive and may renew its leases through a new plugin process.
func (p *process) abandoned() {
	if p.isClosed() || !p.dying.CompareAndSwap(false, true) {
		return
	}
	p.log.Warn("no host can reach this plugin: it ends, and its locks are free after their TTL", "alone", aloneFor)
	p.exit()
}

// exit ends this process. It removes the socket directory, because the host, which normally does
// that, is dead or cannot reach this process.
func (p *process) exit() {
	if dir := os.Getenv(wire.EnvDir); strings.HasPrefix(filepath.Base(dir), wire.Prefix) {
		if err := os.RemoveAll(dir); err != nil {
			p.log.Warn("socket directory stays", "dir", dir, "err", err)
		}
	}
	p.stopProfiles()
	os.Exit(0)
}

// exitCode returns this process's exit status. While hostDied or abandoned runs, exitCode blocks
// for ever, because these methods end the process when they are done.
func (p *process) exitCode() int {
	if p.dying.Load() {
		select {}
	}
	if !p.isClosed() {
		return 1
	}
	return 0
}

// framed serves protocol version 2. Operations arrive on a separate data socket. As in version 1,
// they then pass through the process's tracker.
type framed struct{ *process }

// Configure implements wire.Host.
func (p framed) Configure(ctx context.Context, s wire.Setup) (wire.Opened, error) {
	path := filepath.Join(os.Getenv(wire.EnvDir), "data")
	l, err := frame.Listen(path)
	if err != nil {
		return wire.Opened{}, err
	}
	o, err := p.process.Configure(ctx, s)
	if err != nil {
		l.Close()
		return o, err
	}
	o.DataSocket = path
	go p.operate(l, o)
	return o, nil
}

// operate serves the data socket until the host closes its connections. After that, the process
// runs until the host calls Close, or until lifeline.go finds that the host is gone.
func (p framed) operate(l *frame.Listener, o wire.Opened) {
	refuse := func(err error) { p.log.Warn("connection refused", "err", err) }
	if err := l.Serve(o.Backend, p.redact, refuse, p.lifeline.parent, p.lifeline.hostPid); err != nil && !p.isClosed() {
		p.log.Warn("data connection ended", "err", err)
	}
}
