package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
)

// Workload is the work of one host's callers. Until [Process.Release] is called, each caller asks
// for one of the locks, holds the lock and releases it, again and again.
type Workload struct {
	Kind results.Op `json:"kind"`
	// Prefix and a number from First to First+Names-1 make the name of a lock. If Name is set, there
	// is only one lock, with this name.
	Prefix  string        `json:"prefix"`
	Name    string        `json:"name,omitempty"`
	First   int           `json:"first"`
	Names   int           `json:"names"`
	Callers int           `json:"callers"`
	TTL     time.Duration `json:"ttl_ns"`
	// Limit is the time limit of a call. Hold is the time for which a caller holds a lock. Pause is
	// the time from the release to the caller's next call.
	Limit Range `json:"limit_ns"`
	// AtLeast is the shortest time for which an acquired lock stays taken. Value is the size in bytes
	// of the value that a leader publishes. Both fields need a host that uses package core.
	AtLeast time.Duration `json:"at_least_ns,omitempty"`
	Value   int           `json:"value,omitempty"`
	Hold    Range         `json:"hold_ns"`
	Pause   Range         `json:"pause_ns"`
	// Look is the interval at which a holder checks whether its lease is valid. Default 10 ms.
	Look time.Duration `json:"look_ns,omitempty"`
	// Once makes each caller hold one lock only once, and write to files while it holds the lock. If
	// an attempt fails, the caller asks again until the limit of the call is over.
	Once bool `json:"once,omitempty"`
	// Tick is the interval at which a waiting caller asks for the lock. At 0, the library waits.
	Tick time.Duration `json:"tick_ns,omitempty"`
	Seed uint64        `json:"seed"`
}

// Range is a duration between the first and the second value, both included.
type Range [2]time.Duration

// Forever is a range of durations that are longer than any run.
var Forever = Range{1000 * time.Hour, 1000 * time.Hour}

func (r Range) draw(random *rand.Rand) time.Duration {
	if r[1] <= r[0] {
		return r[0]
	}
	return r[0] + time.Duration(random.Int64N(int64(r[1]-r[0]+1)))
}

func outcomeOf(err error) string {
	over := []error{core.ErrNotHeld, core.ErrHeld, context.DeadlineExceeded, context.Canceled}
	switch {
	case err == nil:
		return ""
	case errors.Is(err, core.ErrClosed):
		return results.CallClosed
	case core.CauseName(err) != "", slices.ContainsFunc(over, func(target error) bool { return errors.Is(err, target) }):
		return results.CallOver
	}
	return results.CallFailed
}

// Work starts the callers of a workload. It returns at once.
func (p *Process) Work(w Workload) error { return p.Send(order{Op: "work", Workload: &w}) }

func (a *agent) start(ctx context.Context, w Workload) {
	g, ctx := a.begin(ctx, w.First)
	for i := range w.Callers {
		c := &caller{agent: a, w: w, stop: ctx.Done(), random: rand.New(rand.NewPCG(w.Seed, uint64(i)))}
		g.work.Go(func() { c.run(ctx) })
	}
}

// The asks method adds its argument to the number of callers that are asking for a lock. It sends a
// report when this number becomes positive, and when it becomes zero.
func (a *agent) asks(change int64) {
	now := a.asking.Add(change)
	if asking := now > 0; asking != (now-change > 0) {
		a.send(note{Asking: &asking})
	}
}

// Reopen makes the host close its client, within timeout, and open a new client, while the callers
// go on. It returns at once.
func (p *Process) Reopen(timeout time.Duration) error {
	return p.Send(order{Op: "reopen", Timeout: timeout})
}

// reopen imitates an application that replaces its client while it runs. If the new client cannot
// be opened, for example because no file descriptor is free, reopen tries again until ctx ends.
func (a *agent) reopen(ctx context.Context, timeout time.Duration) {
	call := results.Call{Op: results.OpClose, SentNs: a.clock.Now(), Served: true}
	call.LimitNs = call.SentNs + int64(timeout)
	old := a.present()
	bounded, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- old.Close(bounded) }()
	err := a.connect()
	for err != nil && ctx.Err() == nil {
		a.back(results.Call{Op: results.OpOpen, SentNs: call.SentNs}, err)
		proc.Sleep(ctx, retryEvery)
		err = a.connect() // tries once more after the end of ctx, when all faults are healed
	}
	a.served.Store(false)
	a.back(call, <-closed)
}

func (a *agent) back(call results.Call, err error) {
	call.BackNs = a.clock.Now()
	if call.Outcome = outcomeOf(err); err != nil {
		call.Error = err.Error()
	}
	a.send(note{Call: &call})
}

type caller struct {
	*agent
	w      Workload
	stop   <-chan struct{} // closed when the caller must end
	random *rand.Rand
}

func (c *caller) run(ctx context.Context) {
	for ctx.Err() == nil {
		name := c.w.First + c.random.IntN(c.w.Names)
		limit := c.w.Limit.draw(c.random)
		call := results.Call{Op: c.w.Kind, Name: name, SentNs: c.clock.Now(), Served: c.served.Load()}
		call.LimitNs = call.SentNs + int64(limit)
		bounded, cancel := context.WithTimeout(ctx, limit)
		c.asks(1)
		err := c.ask(bounded, &call)
		for c.w.Once && err != nil && call.Op != results.OpRelease && proc.Sleep(bounded, retryEvery) {
			call.SentNs = c.clock.Now()
			err = c.ask(bounded, &call)
		}
		c.asks(-1)
		c.over(call, err)
		cancel()
		if c.w.Once {
			return
		}
		proc.Sleep(ctx, c.w.Pause.draw(c.random))
	}
}

// ask asks for one lock, holds it and releases it. It returns the error of the call in *call.
func (c *caller) ask(ctx context.Context, call *results.Call) error {
	name := cmp.Or(c.w.Name, fmt.Sprint(c.w.Prefix, call.Name))
	switch c.w.Kind {
	case results.OpLead:
		e, err := c.client().Elector(name, &core.ElectorOptions{TTL: c.w.TTL, Value: make([]byte, c.w.Value)})
		if err != nil {
			return err
		}
		if c.w.Once {
			term, err := campaign(ctx, e)
			if err != nil {
				return err
			}
			return c.take(term, name, call)
		}
		return e.Run(ctx, func(t *core.Term) {
			c.use(c.granted(t, t.Context().Done(), call, 0))
		})
	case results.OpDo:
		lock, err := c.client().Lock(name, &core.LockOptions{TTL: c.w.TTL, AtLeast: c.w.AtLeast})
		if err != nil {
			return err
		}
		return lock.Do(ctx, func(work context.Context, lease *core.Lease) error {
			h := c.granted(lease, work.Done(), call, c.sentOf(lease, call, c.w.TTL))
			defer c.follow(h, lease, c.w.TTL)()
			c.use(h)
			call.Ran = true
			return nil
		})
	}
	lock, err := c.lock(name)
	if err != nil {
		return err
	}
	lease, err := c.acquire(ctx, lock, call)
	if err != nil {
		return err
	}
	return c.take(lease, name, call)
}

func (c *caller) lock(name string) (load.Lock, error) {
	if c.w.AtLeast == 0 {
		return c.present().Lock(name, c.w.TTL)
	}
	of := c.present().(interface {
		LockWith(name string, o *core.LockOptions) (load.Lock, error)
	})
	return of.LockWith(name, &core.LockOptions{TTL: c.w.TTL, AtLeast: c.w.AtLeast})
}

// ledTerm makes a term usable as a lease.
type ledTerm struct {
	*core.Term
	load.Lease // nil, because package core renews the term
	owner      string
}

// campaign waits until the caller leads. The term's owner is empty if the store does not answer.
func campaign(ctx context.Context, e *core.Elector) (*ledTerm, error) {
	term, err := e.Campaign(ctx)
	if err != nil {
		return nil, err
	}
	leader, _ := e.Leader(ctx)
	return &ledTerm{Term: term, owner: leader.Owner}, nil
}

func (t *ledTerm) Token() uint64                     { return t.Term.Token() }
func (t *ledTerm) Owner() string                     { return t.owner }
func (t *ledTerm) Done() <-chan struct{}             { return t.Context().Done() }
func (t *ledTerm) Release(ctx context.Context) error { return t.Resign(ctx) }

// acquire waits for the lock, tries once, or tries at every tick, as the workload says.
func (c *caller) acquire(ctx context.Context, lock load.Lock, call *results.Call) (load.Lease, error) {
	if c.w.Kind != results.OpTry && c.w.Tick == 0 {
		return lock.Acquire(ctx)
	}
	trier, ok := lock.(load.Trier)
	if !ok {
		return nil, errors.New("it cannot ask just once")
	}
	for {
		lease, err := trier.TryAcquire(ctx)
		if c.w.Tick == 0 || !errors.Is(err, driver.ErrHeld) || !proc.Sleep(ctx, c.w.Tick) {
			return lease, err
		}
		call.SentNs = c.clock.Now()
	}
}

func (c *caller) take(lease load.Lease, name string, call *results.Call) error {
	of, ok := lease.(keptLease)
	if !ok {
		of = newKept(lease)
	}
	h := c.granted(of, of.Done(), call, c.sentOf(lease, call, c.w.TTL))
	c.over(*call, nil)
	defer c.follow(h, of, c.w.TTL)()
	if c.w.Once {
		h.writing.Go(func() { h.write(name, c.stop) })
	}
	c.use(h)
	*call = results.Call{Op: results.OpRelease, Name: call.Name, SentNs: c.clock.Now(), Served: true}
	call.LimitNs = call.SentNs + int64(closeTimeout)
	err := h.release(of) // if the lease was lost, the error usually says so
	if c.w.Once {
		h.writing.Wait()
		select {
		case <-h.over: // the record now has all renewals
		case <-time.After(eventsBy): // no event comes for a lease that was lost before it was in a.held
		}
	}
	h.tell()
	return err
}

// The use method holds a granted lease for the planned time, or until the lease is lost.
func (c *caller) use(h *holding) {
	c.served.Store(true)
	c.asks(-1)
	defer c.asks(1)
	c.hold(c.stop, h, cmp.Or(c.w.Look, lookEvery), time.After(c.w.Hold.draw(c.random)))
}

// The over method reports that a call has returned. It drops the time limit of a call that the end
// of the workload interrupted. With this limit, the call would seem to have given up early.
func (c *caller) over(call results.Call, err error) {
	if proc.Closed(c.stop) {
		call.LimitNs = 0
	}
	c.back(call, err)
}
