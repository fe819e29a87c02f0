package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
)

// These are the orders to a host. Older builds use the first three, so do not rename them.
const (
	opWork    = "work"
	opRelease = "release" // releases the locks of workloads
	opReopen  = "reopen"

	// The host sends an answer to each of the following five orders.
	opAcquireOne = "acquire-one"
	opReleaseOne = "release-one"
	opCycle      = "cycle"
	opAttempts   = "attempts" // asks for the attempts of the last cycles
	opUse        = "read"

	opCancel = "cancel" // cancels another order
)

// order is one line to the host process.
type order struct {
	ID      int64         `json:"id,omitempty"`
	Op      string        `json:"op"`             // one of the constants above, or a [Surrounding]
	Name    string        `json:"name,omitempty"` // the lock of acquire-one
	TTL     time.Duration `json:"ttl_ns,omitempty"`
	First   int           `json:"first,omitempty"`      // number of the first lock to be released
	Timeout time.Duration `json:"timeout_ns,omitempty"` // for reopen
	On      bool          `json:"on,omitempty"`         // for a surrounding
	Target  int64         `json:"target,omitempty"`     // for release-one and cancel: the order that began the call

	Workload *Workload    `json:"workload,omitempty"`
	Cycles   *load.Cycles `json:"cycles,omitempty"`
}

// note is one line from the host process: either the answer to an order, or a report.
type note struct {
	ID       int64             `json:"id,omitempty"`   // the order that the note answers
	From     int64             `json:"from,omitempty"` // From, To: just before and after the ordered call
	To       int64             `json:"to,omitempty"`
	Token    uint64            `json:"token,omitempty"`
	Attempts []results.Attempt `json:"attempts,omitempty"`
	Use      *Use              `json:"use,omitempty"`
	Failed   string            `json:"failed,omitempty"` // why the order failed

	Lease  *results.Hold  `json:"lease,omitempty"` // a hold that has begun, was renewed or has ended
	Write  *results.Write `json:"write,omitempty"`
	Halt   *results.Halt  `json:"halt,omitempty"`
	Call   *results.Call  `json:"call,omitempty"`
	Plugin int            `json:"plugin,omitempty"` // process id of the host's plugin
	Asking *bool          `json:"asking,omitempty"` // whether any caller asks for a lock
	Idle   bool           `json:"idle,omitempty"`   // the order to release is done
}

func (n *note) fail(err error) {
	if err != nil {
		n.Failed = err.Error()
	}
}

// err returns the error in the answer to an order. If ctx has ended, it wraps the error of ctx.
func (n note) err(ctx context.Context) error {
	switch {
	case n.Failed == "":
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", n.Failed, ctx.Err())
	}
	return errors.New(n.Failed)
}

// Do implements [proc.Agent]. If an order needs an answer, Do starts a goroutine that carries the
// order out, and does not wait for it.
func (a *agent) Do(ctx context.Context, o order) {
	switch o.Op {
	case opWork:
		a.start(ctx, *o.Workload)
	case opRelease:
		a.release(o.First)
		a.send(note{Idle: true})
	case opReopen:
		g, ctx := a.begin(ctx, 0)
		g.work.Go(func() { a.reopen(ctx, o.Timeout) })
	case opCancel:
		a.mu.Lock()
		defer a.mu.Unlock()
		if cancel := a.cancel[o.Target]; cancel != nil {
			cancel()
		}
	case string(BlockedLog), string(Reaper), string(IgnoredChildren):
		a.surround(Surrounding(o.Op), o.On)
	default:
		a.answer(ctx, o)
	}
}

func (a *agent) answer(ctx context.Context, o order) {
	ctx, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	a.cancel[o.ID] = cancel
	a.mu.Unlock()
	a.calls.Go(func() {
		n := a.carryOut(ctx, o)
		n.ID = o.ID
		a.mu.Lock()
		delete(a.cancel, o.ID)
		a.mu.Unlock()
		cancel()
		a.send(n)
	})
}

func (a *agent) carryOut(ctx context.Context, o order) note {
	switch o.Op {
	case opAcquireOne:
		return a.acquireOne(ctx, o)
	case opReleaseOne:
		return a.releaseOne(o)
	case opCycle:
		return a.cycle(ctx, o)
	case opUse:
		return note{Use: ownUse()}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return note{Attempts: a.attempts}
}

// Lock implements [load.Locker]. The host's process calls the methods of the lock, and measures how
// long they take. So the times do not include messages between the processes.
func (p *Process) Lock(name string, ttl time.Duration) (load.Lock, error) {
	return &calledLock{p, name, ttl}, nil
}

type calledLock struct {
	p    *Process
	name string
	ttl  time.Duration
}

func (l *calledLock) Acquire(ctx context.Context) (load.Lease, error) {
	grant, err := l.p.ask(ctx, order{Op: opAcquireOne, Name: l.name, TTL: l.ttl})
	if err != nil {
		return nil, err
	}
	return &calledLease{p: l.p, grant: grant}, nil
}

type calledLease struct {
	p              *Process
	grant, release note
}

func (l *calledLease) Token() uint64 { return l.grant.Token }

// Renew always fails, because there is no order that makes a host renew a lease.
func (l *calledLease) Renew(context.Context) error { return errors.ErrUnsupported }

func (l *calledLease) Release(context.Context) (err error) {
	l.release, err = l.p.ask(context.Background(), order{Op: opReleaseOne, Target: l.grant.ID})
	return err
}

// Granted implements [load.Timed], with times measured in the host process.
func (l *calledLease) Granted() (asked, answered int64) { return l.grant.From, l.grant.To }

// Released implements [load.Timed], with times measured in the host process.
func (l *calledLease) Released() (ended, done int64) { return l.release.From, l.release.To }

// Cycle makes callers in the host's process acquire and release locks in a loop, without messages
// to this process. It returns when all callers are done, or have stopped because ctx ended. The
// error is the first error of any caller. The records of the attempts stay in the host's process
// until [Process.Attempts] fetches them. Sending them earlier would take processor time from hosts
// that still measure.
func (p *Process) Cycle(ctx context.Context, c load.Cycles) error {
	_, err := p.ask(ctx, order{Op: opCycle, Cycles: &c})
	return err
}

// Attempts fetches the attempts of the last [Process.Cycle]. If it returns an error, these attempts
// are lost.
func (p *Process) Attempts() ([]results.Attempt, error) {
	n, err := p.ask(context.Background(), order{Op: opAttempts})
	if err != nil {
		return nil, fmt.Errorf("host: attempts: %w", err)
	}
	return n.Attempts, nil
}

func (a *agent) acquireOne(ctx context.Context, o order) (n note) {
	lock, err := a.present().Lock(o.Name, o.TTL)
	var lease load.Lease
	n.From = a.clock.Now()
	if err == nil {
		lease, err = lock.Acquire(ctx)
	}
	n.To = a.clock.Now()
	if n.fail(err); err != nil {
		return n
	}
	n.Token = lease.Token()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leases[o.ID] = lease
	return n
}

func (a *agent) releaseOne(o order) (n note) {
	a.mu.Lock()
	lease := a.leases[o.Target]
	delete(a.leases, o.Target)
	a.mu.Unlock()
	n.From = a.clock.Now()
	n.fail(lease.Release(context.Background()))
	n.To = a.clock.Now()
	return n
}

func (a *agent) cycle(ctx context.Context, o order) (n note) {
	attempts, err := o.Cycles.Run(ctx, a.present(), a.clock)
	n.fail(err)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts = attempts
	return n
}
