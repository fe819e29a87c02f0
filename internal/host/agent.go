package host

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/baseline"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/record"
)

const (
	// startTimeout is how long a plugin may take until it is open: many start at
	// once on a machine that has other things to do.
	startTimeout = 30 * time.Second
	// closeBudget bounds the orderly end of a host.
	closeBudget = 4 * time.Second
)

// What a host is told.
const (
	opAcquire  = "acquire"
	opRelease  = "release"
	opCancel   = "cancel" // another order
	opCycle    = "cycle"
	opAttempts = "attempts" // of the last cycles
	opCampaign = "campaign"
	opResign   = "resign"
)

// carryOut has what does an order, and returns its answer.
var carryOut = map[string]func(*agent, context.Context, order) line{
	opAcquire: (*agent).acquire, opRelease: (*agent).release, opCycle: (*agent).cycle, opAttempts: (*agent).recorded,
	opCampaign: (*agent).campaign, opResign: (*agent).resign,
}

// agent is the state of a host in its process.
type agent struct {
	parent  *proc.Parent
	clock   load.Clock
	locker  load.Locker
	library bool // is what locker is of
	work    sync.WaitGroup

	mu       sync.Mutex
	leases   map[int64]load.Lease
	cancel   map[int64]context.CancelFunc
	attempts []record.Attempt // of the last cycles
	terms    map[string]*term // by the lock's name
}

func openAgent(parent *proc.Parent, s start) (proc.Agent[order], error) {
	a := &agent{
		parent: parent, clock: load.ClockFrom(proc.MachineClock().Zero().Add(time.Duration(s.Zero))), library: s.Baseline != "",
		leases: map[int64]load.Lease{}, cancel: map[int64]context.CancelFunc{}, terms: map[string]*term{},
	}
	if a.library {
		bl, ok := baseline.ByName(s.Baseline)
		if !ok {
			return nil, fmt.Errorf("there is no baseline %q", s.Baseline)
		}
		var err error
		a.locker, err = bl.Open(context.Background(), s.Config)
		return a, err
	}
	quiet := slog.New(slog.DiscardHandler)
	b, err := plugin.Open(context.Background(), s.Backend, &plugin.Options{
		Path: s.Path, Config: s.Config, NoMTLS: s.NoMTLS, StartTimeout: startTimeout, Logger: quiet,
	})
	if err != nil {
		return nil, err
	}
	pid, _ := plugin.ProcessOf(b)
	parent.Send(line{Plugin: pid})
	a.locker = load.NewCore(b, &core.Options{Logger: quiet, OnEvent: a.event})
	return a, nil
}

// Do implements [proc.Agent]. It does not wait until the order is carried out.
func (a *agent) Do(ctx context.Context, o order) {
	if o.Op == opCancel {
		a.mu.Lock()
		defer a.mu.Unlock()
		if cancel := a.cancel[o.Target]; cancel != nil {
			cancel()
		}
		return
	}
	bounded, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	a.cancel[o.ID] = cancel
	a.mu.Unlock()
	a.work.Go(func() {
		l := carryOut[o.Op](a, bounded, o)
		l.ID = o.ID
		a.mu.Lock()
		delete(a.cancel, o.ID)
		a.mu.Unlock()
		cancel()
		a.parent.Send(l)
	})
}

// Close implements [proc.Agent].
func (a *agent) Close() error {
	a.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closeBudget)
	defer cancel()
	// What was held was told; a session that has expired is no surprise.
	_ = a.locker.Close(ctx)
	return nil
}

func (a *agent) acquire(ctx context.Context, o order) (l line) {
	lock, err := a.locker.Lock(o.Lock.Name, o.Lock.TTL)
	var lease load.Lease
	l.From = a.clock.Now()
	if err == nil {
		lease, err = lock.Acquire(ctx)
	}
	l.To = a.clock.Now()
	l.Outcome = load.OutcomeOf(err)
	if l.fail(err); err != nil {
		return l
	}
	l.Token = lease.Token()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leases[o.ID] = lease
	return l
}

func (a *agent) release(_ context.Context, o order) (l line) {
	a.mu.Lock()
	lease := a.leases[o.Target]
	delete(a.leases, o.Target)
	a.mu.Unlock()
	l.From = a.clock.Now()
	l.fail(lease.Release(context.Background()))
	l.To = a.clock.Now()
	return l
}

// cycle carries out [Process.Cycle].
func (a *agent) cycle(ctx context.Context, o order) (l line) {
	callers := o.Cycles.Run(ctx, a.locker, a.clock)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts = nil
	for _, caller := range callers {
		a.attempts = append(a.attempts, caller.Attempts...)
		if l.Failure == "" {
			l.fail(caller.Err)
		}
	}
	return l
}

func (a *agent) recorded(context.Context, order) line {
	a.mu.Lock()
	defer a.mu.Unlock()
	return line{Attempts: a.attempts}
}
