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
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// closeBudget bounds the closing of a backend, so that the host sees the
// process end in time.
const closeBudget = 700 * time.Millisecond

// process is the state of a plugin process. It implements wire.Host.
type process struct {
	spec     driver.Spec
	log      *slog.Logger
	redact   *wire.Redactor
	lifeline *lifeline
	prints   *os.File // os.Stdout and os.Stderr shall be this file

	stopProfiles func() // flushes the profiles that were asked for

	held     atomic.Pointer[tracker] // set by Configure
	setup    wire.Setup              // read only after held was set
	sessions sessions
	once     sync.Once
	closed   chan struct{} // closed by Close
	dying    atomic.Bool   // hostDied or abandoned ends the process
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
	// Note: go-plugin has redirected both into a stream that our host does not
	// read, and a full stream would block a goroutine that prints.
	os.Stdout, os.Stderr = p.prints, p.prints
	p.redact.SetConfig(s.Config, secretKey(p.spec))
	cfg, err := p.spec.CheckConfig(s.Config)
	if err != nil {
		return wire.Opened{}, err
	}
	// Opening must end with the call, but the backend must outlive it.
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

// hostDied ends the process after it has released what its host held. Only the
// first call does anything.
func (p *process) hostDied() {
	if !p.dying.CompareAndSwap(false, true) {
		return
	}
	if t := p.held.Load(); t != nil && !p.setup.Abandon && !p.isClosed() {
		p.releaseAll(t)
		// A backend may have answered a release before it has woken the next
		// waiter; closing it waits for that.
		if err := p.Close(context.Background()); err != nil {
			p.log.Warn("host died; closing the backend", "err", err)
		}
	}
	p.exit()
}

// abandoned ends the process, which no host can reach any more, although its
// host may live. It releases nothing: the host may hold all leases, with the
// help of the plugin that came after this one.
func (p *process) abandoned() {
	if p.isClosed() || !p.dying.CompareAndSwap(false, true) {
		return
	}
	p.log.Warn("no host can reach this plugin: it ends, and its locks are free after their TTL", "alone", aloneFor)
	p.exit()
}

func (p *process) exit() {
	removeOurDir(p.log)
	p.stopProfiles()
	os.Exit(0)
}

// exitCode returns 0 after a Close. It does not return while hostDied or
// abandoned is at work, because they end the process themselves.
func (p *process) exitCode() int {
	if p.dying.Load() {
		select {}
	}
	if !p.isClosed() {
		return 1
	}
	return 0
}

// removeOurDir removes the socket directory, which is the host's to remove
// while it lives.
func removeOurDir(log *slog.Logger) {
	dir := os.Getenv(wire.EnvDir)
	if !strings.HasPrefix(filepath.Base(dir), wire.Prefix) {
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		log.Warn("socket directory stays", "dir", dir, "err", err)
	}
}
