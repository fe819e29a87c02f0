package host

import (
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/record"
)

// What such a process is told.
const (
	opAcquire  = "acquire"
	opRelease  = "release"
	opCancel   = "cancel" // an acquire, or cycles
	opCycle    = "cycle"
	opAttempts = "attempts" // of the last cycles
)

// called is the state of such a process.
type called struct {
	parent *proc.Parent
	clock  proc.Clock
	locker load.Locker

	mu       sync.Mutex
	leases   map[int64]load.Lease
	cancel   map[int64]context.CancelFunc
	attempts []record.Attempt // of the last cycles
}

// callersMain reads the spec and then calls, until its input ends.
func callersMain(parent *proc.Parent) error {
	c := &called{parent: parent, clock: proc.MachineClock(), leases: map[int64]load.Lease{}, cancel: map[int64]context.CancelFunc{}}
	var spec Spec
	if err := parent.Receive(&spec); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := c.open(ctx, spec); err != nil {
		c.reply(callReply{Error: err.Error()})
		return nil // whoever has started it says so
	}
	c.reply(callReply{})
	var work sync.WaitGroup
	for {
		var one call
		if parent.Receive(&one) != nil {
			break
		}
		c.do(ctx, &work, one)
	}
	cancel()
	work.Wait()
	closing, done := context.WithTimeout(context.Background(), closeBudget)
	defer done()
	return c.locker.Close(closing)
}

func (c *called) open(ctx context.Context, s Spec) error {
	b, err := s.open(ctx)
	if err != nil {
		return err
	}
	c.locker = load.NewCore(b, &core.Options{Logger: quiet})
	return nil
}

// do carries out a call without waiting for it.
func (c *called) do(ctx context.Context, work *sync.WaitGroup, one call) {
	switch one.Op {
	case opAcquire:
		asking := c.cancellable(ctx, one.ID)
		work.Go(func() { c.acquire(asking, one) })
	case opCycle:
		cycling := c.cancellable(ctx, one.ID)
		work.Go(func() { c.cycle(cycling, one) })
	case opAttempts:
		c.mu.Lock()
		r := callReply{ID: one.ID, Attempts: c.attempts}
		c.mu.Unlock()
		c.reply(r)
	case opCancel:
		c.mu.Lock()
		defer c.mu.Unlock()
		if cancel := c.cancel[one.Target]; cancel != nil {
			cancel()
		}
	case opRelease:
		c.mu.Lock()
		lease := c.leases[one.Target]
		delete(c.leases, one.Target)
		c.mu.Unlock()
		work.Go(func() { c.release(lease, one) })
	}
}

// cancellable is ctx until a call cancels it, or forget is called.
func (c *called) cancellable(ctx context.Context, id int64) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel[id] = cancel
	return ctx
}

// forget gives up what belongs to a call that is done. The caller holds mu.
func (c *called) forget(id int64) {
	c.cancel[id]() // its timer and parent are done with it
	delete(c.cancel, id)
}

func (c *called) acquire(ctx context.Context, one call) {
	r := callReply{ID: one.ID}
	lock, err := c.locker.Lock(one.Name, time.Duration(one.TTLNs))
	var lease load.Lease
	r.From = c.clock.Now()
	if err == nil {
		lease, err = lock.Acquire(ctx)
	}
	r.To = c.clock.Now()
	c.mu.Lock()
	c.forget(one.ID)
	if err == nil {
		c.leases[one.ID], r.Token = lease, lease.Token()
	}
	c.mu.Unlock()
	if r.Outcome = load.OutcomeOf(err); err != nil {
		r.Error = err.Error()
	}
	c.reply(r)
}

func (c *called) release(lease load.Lease, one call) {
	r := callReply{ID: one.ID, Outcome: record.Granted, From: c.clock.Now()}
	if err := lease.Release(context.Background()); err != nil {
		r.Error = err.Error()
	}
	r.To = c.clock.Now()
	c.reply(r)
}

func (c *called) reply(r callReply) {
	_ = c.parent.Send(r) // nobody reads it any more when it fails
}
