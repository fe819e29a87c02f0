package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench/internal/baseline"
	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/proc"
)

const (
	// startTimeout is the time limit for opening a plugin. It is long, because many plugins may start
	// at the same time on a busy machine.
	startTimeout = 30 * time.Second
	// closeTimeout limits one release of a lock and, when the host ends, the release of all locks.
	closeTimeout = 5 * time.Second
)

// agent runs in a host's process, and carries out the orders that the parent process sends.
type agent struct {
	parent *proc.Parent
	spec   Spec
	clock  proc.Clock

	groups []*group // one for each order that starts work
	calls  sync.WaitGroup

	mu       sync.Mutex
	locker   load.Locker
	backend  driver.Backend // nil for a library
	held     map[leaseID]*holding
	leases   map[int64]load.Lease
	cancel   map[int64]context.CancelFunc
	attempts []results.Attempt // the attempts of the last opCycle

	served  atomic.Bool  // whether the current client was granted a lock
	asking  atomic.Int64 // number of workload callers that ask for a lock now
	plugin  atomic.Int64 // process id in the last report about the plugin
	log     blocker
	reaping atomic.Bool

	heartbeat *proc.Heartbeat // nil in a measured host
}

func openAgent(parent *proc.Parent, s Spec) (_ proc.Agent[order], err error) {
	a := &agent{
		parent: parent, spec: s, clock: proc.ClockFrom(proc.MachineClock().Zero().Add(time.Duration(s.Zero))),
		held: map[leaseID]*holding{}, leases: map[int64]load.Lease{}, cancel: map[int64]context.CancelFunc{},
	}
	if err := a.connect(); err != nil {
		return nil, err
	}
	if !s.measured() {
		a.heartbeat = proc.StartHeartbeat(a.noteHeartbeat)
	}
	a.sendPlugin()
	return a, nil
}

// connect opens a client of the plugin or, for a baseline, a library.
func (a *agent) connect() error {
	var locker load.Locker
	var backend driver.Backend
	var err error
	if a.spec.Baseline != "" {
		bl, ok := baseline.ByName(a.spec.Baseline)
		if !ok {
			return fmt.Errorf("there is no baseline %q", a.spec.Baseline)
		}
		locker, err = bl.Open(context.Background(), a.spec.Config)
	} else {
		opts := &core.Options{Logger: slog.New(slog.DiscardHandler), OnEvent: a.event}
		if !a.spec.measured() {
			opts.Label, opts.Logger = fmt.Sprintf("host-%d", a.spec.Host), slog.New(slog.NewTextHandler(&a.log, nil))
		}
		backend, err = plugin.Open(context.Background(), a.spec.Backend, &plugin.Options{
			Path: a.spec.Path, Config: a.spec.Config, NoMTLS: a.spec.NoMTLS, StartTimeout: startTimeout, Logger: opts.Logger,
		})
		if err == nil {
			locker = load.NewCore(backend, opts)
		}
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.locker, a.backend = locker, backend
	return nil
}

func (a *agent) present() load.Locker {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.locker
}

// client returns the core client that callers use now. It panics if callers use another library.
func (a *agent) client() *core.Client {
	return a.present().(interface{ Client() *core.Client }).Client()
}

// Close implements [proc.Agent].
func (a *agent) Close() error {
	a.log.block(false)
	a.reaping.Store(false)
	a.release(0)
	a.calls.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if a.spec.measured() {
		// Ignore the error: all holds are already reported, and a library's sessions may have expired.
		_ = a.present().Close(ctx)
		return nil
	}
	a.heartbeat.Stop()
	err := a.present().Close(ctx)
	if errors.Is(err, core.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		err = nil // a fault may have left no server that can confirm the releases
	}
	return err
}

func (a *agent) send(n note) { a.parent.Send(n) }

func (a *agent) sendPlugin() {
	a.mu.Lock()
	b := a.backend
	a.mu.Unlock()
	if pid, ok := plugin.ProcessOf(b); ok && int(a.plugin.Swap(int64(pid))) != pid {
		a.send(note{Plugin: pid})
	}
}

// leaseID identifies a lease. The owner is not enough, because a lock that passes from one caller
// of this host to another keeps its owner.
type leaseID struct {
	owner string
	token uint64
}

// event is the OnEvent function of the host's client. Core may call it a little after the event.
func (a *agent) event(e core.Event) {
	a.log.pass()
	switch e.Kind {
	case core.EventLost, core.EventReleased, core.EventRenewed:
	default:
		return
	}
	a.mu.Lock()
	h := a.held[leaseID{e.Owner, e.Token}]
	a.mu.Unlock()
	switch {
	case h == nil:
	case e.Kind == core.EventRenewed:
		done := a.clock.Of(e.Time)
		h.renewed(done-int64(e.Took), done)
	default:
		close(h.over)
	}
}

// noteHeartbeat is called at each heartbeat. It reports a stall of this process, if there was one.
func (a *agent) noteHeartbeat(stall *proc.Stall) {
	a.sendPlugin()
	if stall != nil {
		a.send(note{Halt: &results.Halt{Host: a.spec.Host, Why: results.HaltStarved, From: a.clock.Of(stall.From), To: a.clock.Of(stall.To)}})
	}
}

// Surrounding is unusual behavior of an application's process that must not harm locks.
type Surrounding string

const (
	// BlockedLog blocks the logger and OnEvent, as a pipe without a reader does.
	BlockedLog Surrounding = "blocked-log"
	// Reaper makes the process wait for all children, including the plugin, as an init process does.
	Reaper Surrounding = "reaper"
	// IgnoredChildren makes the process ignore SIGCHLD, so that the kernel reaps its children.
	IgnoredChildren Surrounding = "ignored-children"
)

// Surround makes the host begin the surrounding s or, if on is false, end it. It does not wait.
func (p *Process) Surround(s Surrounding, on bool) error {
	return p.Send(order{Op: string(s), On: on})
}

func (a *agent) surround(s Surrounding, on bool) {
	switch s {
	case BlockedLog:
		a.log.block(on)
	case Reaper:
		a.reaping.Store(on)
		if on {
			go a.reap()
		}
	case IgnoredChildren:
		if on {
			signal.Ignore(syscall.SIGCHLD)
		} else {
			signal.Reset(syscall.SIGCHLD)
		}
	}
}

func (a *agent) reap() {
	for a.reaping.Load() {
		var status syscall.WaitStatus
		if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// blocker is the writer of the host's logger. While it is blocked, log calls and OnEvent wait.
type blocker struct {
	gate    sync.RWMutex // locked while the blocker is blocked
	blocked bool
}

// Only one goroutine may call block.
func (g *blocker) block(on bool) {
	switch {
	case on && !g.blocked:
		g.gate.Lock()
	case !on && g.blocked:
		g.gate.Unlock()
	}
	g.blocked = on
}

func (g *blocker) pass() {
	g.gate.RLock()
	defer g.gate.RUnlock()
}

func (g *blocker) Write(line []byte) (int, error) {
	g.pass()
	return len(line), nil
}
