package recorder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/record"
)

// Main makes this process a recorder and ends it, when it was started as one;
// otherwise it does nothing. Call it first in main or TestMain.
func Main() { proc.Become(role, "recorder", openAgent) }

const (
	// startTimeout is how long a plugin may take until it is open: many start
	// at once on a machine that has other things to do.
	startTimeout = 20 * time.Second
	// closeTimeout bounds the release of everything at the end.
	closeTimeout = 5 * time.Second
)

// agent is the state of a recorder process.
type agent struct {
	parent  *proc.Parent
	spec    Spec
	backend driver.Backend
	client  *core.Client
	writer  writer

	groups []*group // of the orders, which are carried out one after the other

	mu   sync.Mutex
	held map[leaseID]*holding

	served  atomic.Bool  // the present client was granted a lock
	asking  atomic.Int64 // callers of workloads that ask for a lock
	plugin  atomic.Int64 // process id that was sent last
	log     blocker
	reaping atomic.Bool

	heartbeat *proc.Heartbeat
}

func openAgent(parent *proc.Parent, s Spec) (_ proc.Agent[order], err error) {
	a := &agent{parent: parent, spec: s, held: map[leaseID]*holding{}}
	if err := a.connect(); err != nil {
		return nil, err
	}
	if a.writer, err = openWriter(s.Resources); err != nil {
		return nil, err
	}
	a.heartbeat = proc.StartHeartbeat(a.noteHeartbeat)
	a.sendPlugin()
	return a, nil
}

// Do implements [proc.Agent].
func (a *agent) Do(ctx context.Context, o order) {
	switch o.Op {
	case "acquire":
		a.acquire(ctx, o)
	case "work":
		a.start(ctx, *o.Workload)
	case "reopen":
		g, _ := a.begin(ctx, 0)
		g.work.Go(func() { a.reopen(o.Timeout) })
	case string(BlockedLog), string(Reaper), string(IgnoredChildren):
		a.surround(Surrounding(o.Op), o.On)
	case "read":
		a.send(note{Use: ownUse()})
	case "release":
		a.release(o.First)
		a.send(note{Idle: true})
	}
}

// Close implements [proc.Agent].
func (a *agent) Close() error {
	a.log.block(false)
	a.reaping.Store(false)
	a.release(0)
	a.heartbeat.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := a.present().Close(ctx)
	if errors.Is(err, core.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		err = nil // the fault may have left no server to release to
	}
	return errors.Join(err, a.writer.close())
}

// connect opens a client in place of the one before.
func (a *agent) connect() error {
	log := slog.New(slog.NewTextHandler(&a.log, nil))
	b, err := plugin.Open(context.Background(), a.spec.Backend, &plugin.Options{
		Path: a.spec.Path, Config: a.spec.Config, NoMTLS: a.spec.NoMTLS, StartTimeout: startTimeout, Logger: log,
	})
	if err != nil {
		return err
	}
	c := core.New(b, &core.Options{Label: fmt.Sprintf("recorder-%d", a.spec.Host), Logger: log, OnEvent: a.event})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.backend, a.client = b, c
	return nil
}

func (a *agent) send(n note) { a.parent.Send(n) }

// sendPlugin sends the plugin process when it is not the one sent before.
func (a *agent) sendPlugin() {
	a.mu.Lock()
	b := a.backend
	a.mu.Unlock()
	if pid, ok := plugin.ProcessOf(b); ok && int(a.plugin.Swap(int64(pid))) != pid {
		a.send(note{Plugin: pid})
	}
}

// leaseID distinguishes leases: one that was handed over inside this host has the
// owner of the one before.
type leaseID struct {
	owner string
	token uint64
}

// note is told what happens to leases, a moment after it did.
func (a *agent) note(e core.Event) {
	a.mu.Lock()
	h := a.held[leaseID{e.Owner, e.Token}]
	a.mu.Unlock()
	if h == nil {
		return
	}
	switch e.Kind {
	case core.EventLost, core.EventReleased:
		close(h.over)
	case core.EventRenewed:
		done := proc.Now() - int64(time.Since(e.Time))
		h.renewed(done-int64(e.Took), done)
	}
}

// noteHeartbeat reports the plugin, and a time in which this process did not run.
func (a *agent) noteHeartbeat(stall *proc.Stall) {
	a.sendPlugin()
	if stall != nil {
		clock := proc.MachineClock()
		a.send(note{Halt: &record.Halt{Host: a.spec.Host, Why: record.HaltStarved, From: clock.Of(stall.From), To: clock.Of(stall.To)}})
	}
}
