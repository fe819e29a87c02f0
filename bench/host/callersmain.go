package host

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/load"
	"github.com/lockbench/lockbench/bench/record"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
)

// envCallers makes a binary that calls CallersMain a process of callers.
const envCallers = "LOCKBENCH_CALLERS"

// What such a process is told.
const (
	opAcquire  = "acquire"
	opRelease  = "release"
	opCancel   = "cancel" // an acquire, or cycles
	opCycle    = "cycle"
	opAttempts = "attempts" // of the last cycles
)

// CallersMain makes this process one of callers and ends it, when it was
// started as one; otherwise it does nothing. Call it first in main or TestMain.
func CallersMain() { Become(envCallers, "callers", callersMain) }

// called is the state of such a process.
type called struct {
	clock  clock
	locker load.Locker

	mu       sync.Mutex
	out      *json.Encoder
	leases   map[int64]load.Lease
	cancel   map[int64]context.CancelFunc
	attempts []record.Attempt // of the last cycles
}

// callersMain reads the spec and then calls, until its input ends.
func callersMain(stdin io.Reader, stdout io.Writer) error {
	in := json.NewDecoder(bufio.NewReader(stdin))
	c := &called{out: json.NewEncoder(stdout), leases: map[int64]load.Lease{}, cancel: map[int64]context.CancelFunc{}}
	var spec Spec
	if err := in.Decode(&spec); err != nil {
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
		if in.Decode(&one) != nil {
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
	c.clock = newClock()
	quiet := slog.New(slog.DiscardHandler)
	b, err := plugin.Open(ctx, s.Backend, &plugin.Options{Path: s.Path, Config: s.Config, NoMTLS: s.NoMTLS, StartTimeout: startTimeout, Logger: quiet})
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
	r.From = c.clock.now()
	if err == nil {
		lease, err = lock.Acquire(ctx)
	}
	r.To = c.clock.now()
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
	r := callReply{ID: one.ID, Outcome: record.Granted, From: c.clock.now()}
	if err := lease.Release(context.Background()); err != nil {
		r.Error = err.Error()
	}
	r.To = c.clock.now()
	c.reply(r)
}

func (c *called) reply(r callReply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(r) // nobody reads it any more when it fails
}
