package recorder

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/record"
)

const (
	// keepers share the leases of a pool.
	keepers = 32
	// turnEvery is how often each of them gives one lease back and takes it
	// again, and looks whether others are lost.
	turnEvery = 250 * time.Millisecond
	// reportEvery is how often a recorder reports on its pool.
	reportEvery = time.Second
)

// LeasePool is what a recorder reports of the many leases that it keeps.
type LeasePool struct {
	// Held is how many leases there are, with those that were given back to be
	// taken again.
	Held   int    `json:"held"`
	Losses []Loss `json:"losses,omitempty"`
	// Attempts are those that are over.
	Attempts []record.Attempt `json:"attempts,omitempty"`
}

// Loss is a lease of a pool that was neither released nor kept.
type Loss struct {
	Name  int    `json:"name"`
	At    int64  `json:"at_ns"` // by [proc.Now]
	Cause string `json:"cause"`
}

// add takes what has happened since c.
func (c *LeasePool) add(newer LeasePool) {
	c.Held = newer.Held
	c.Losses = append(c.Losses, newer.Losses...)
	c.Attempts = append(c.Attempts, newer.Attempts...)
}

// Keep lets the recorder hold count leases, named after prefix and their
// number, until [Process.Release]. It does not look at each and writes
// nothing under them; some are always given back and taken again, and so is
// every one that is lost. It returns at once.
func (p *Process) Keep(prefix string, count int, ttl time.Duration) error {
	return p.Send(order{Op: "keep", Names: []string{prefix}, Count: count, TTL: ttl})
}

// AwaitPool returns when all count leases are held.
func (p *Process) AwaitPool(ctx context.Context, count int) error {
	return p.Await(ctx, func(Seen) bool { return p.pool.Held >= count })
}

// TakePool returns what was reported of the pool since the last call.
func (p *Process) TakePool() LeasePool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.pool
	p.pool = LeasePool{Held: c.Held}
	return c
}

// leasePool is the state of the leases that keep has begun.
type leasePool struct {
	agent *agent
	order order
	held  atomic.Int64

	mu    sync.Mutex
	news  LeasePool
	known []known // by the number of the name
	gone  int     // that are lost, which their keepers have not seen
}

// known is what is known of one lease as soon as it happens: its keeper may be
// busy with another one for long.
type known struct {
	token  uint64 // 0 while there is no lease
	lostAt int64  // by [proc.Now], 0 for not lost
}

// onEvent takes the event of a loss.
func (c *leasePool) onEvent(e core.Event) {
	text, own := strings.CutPrefix(e.Name, c.order.Names[0])
	n, err := strconv.Atoi(text)
	if !own || err != nil || n < 0 || n >= len(c.known) {
		return
	}
	at := proc.Now() - int64(time.Since(e.Time))
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := &c.known[n]; k.token == e.Token && k.lostAt == 0 {
		k.lostAt = at
		c.gone++
	}
}

// know replaces what is known of one lease. It returns when that was lost, 0 for
// not.
func (c *leasePool) know(one *kept, token uint64) (lostAt int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &c.known[one.attempt.Name]
	if lostAt = k.lostAt; lostAt != 0 {
		c.gone--
	}
	*k = known{token: token}
	return lostAt
}

// keep starts the keepers, and what reports on them.
func (a *agent) keep(o order) {
	g := a.begin(0)
	c := &leasePool{agent: a, order: o, known: make([]known, o.Count)}
	a.mu.Lock()
	a.pool = c
	a.mu.Unlock()
	var keeping sync.WaitGroup
	for k := range keepers {
		keeping.Go(func() { c.keep(k, g.stop) })
	}
	over := make(chan struct{})
	g.work.Go(func() {
		keeping.Wait()
		close(over)
	})
	g.work.Go(func() {
		t := time.NewTicker(reportEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				c.report()
			case <-over:
				c.report()
				return
			}
		}
	})
}

func (c *leasePool) report() {
	c.mu.Lock()
	news, gone := c.news, c.gone
	c.news = LeasePool{}
	c.mu.Unlock()
	news.Held = max(0, int(c.held.Load())-gone)
	c.agent.send(note{Pool: &news})
}

// kept is one lease of a pool.
type kept struct {
	lock    *core.Lock
	lease   *core.Lease // nil while it has none
	counted bool        // in held
	attempt record.Attempt
}

// keep keeps the leases number k, k + keepers and so on, until stop closes,
// and releases them.
func (c *leasePool) keep(k int, stop chan struct{}) {
	ctx, cancel := until(stop)
	defer cancel()
	var mine []*kept
	for name := k; name < c.order.Count; name += keepers {
		lock, err := c.agent.present().Lock(fmt.Sprint(c.order.Names[0], name), &core.LockOptions{TTL: c.order.TTL})
		if err != nil {
			c.agent.send(note{Failed: err.Error()})
			return
		}
		mine = append(mine, &kept{lock: lock, attempt: record.Attempt{Client: int32(k), Name: int32(name)}})
	}
	t := time.NewTicker(turnEvery)
	defer t.Stop()
	for turn := 0; ctx.Err() == nil && len(mine) > 0; turn++ {
		for _, one := range mine {
			c.reacquire(ctx, one)
		}
		select {
		case <-t.C:
			c.release(mine[turn%len(mine)])
		case <-ctx.Done():
		}
	}
	for _, one := range mine {
		c.release(one)
		c.count(one, false)
	}
}

// count reports whether one is among those that are held.
func (c *leasePool) count(one *kept, held bool) {
	if held == one.counted {
		return
	}
	one.counted = held
	if held {
		c.held.Add(1)
	} else {
		c.held.Add(-1)
	}
}

// until is a context that ends when stop closes.
func until(stop chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// reacquire takes a lease that is missing, or lost. It tries again until ctx ends.
func (c *leasePool) reacquire(ctx context.Context, one *kept) {
	if one.lease != nil && !c.lost(one) {
		return
	}
	for ctx.Err() == nil {
		a := record.Attempt{Client: one.attempt.Client, Name: one.attempt.Name, Asked: proc.Now()}
		lease, err := one.lock.Acquire(ctx)
		a.Answered, a.Outcome = proc.Now(), load.OutcomeOf(err)
		one.attempt = a
		if err == nil {
			one.lease, one.attempt.Token = lease, lease.Token()
			c.know(one, lease.Token())
			c.count(one, true)
			return
		}
		c.count(one, false)
		c.over(one)
		again(ctx)
	}
}

// lost reports a lease whose end was not wanted; false when it goes on.
func (c *leasePool) lost(one *kept) bool {
	select {
	case <-one.lease.Done():
	default:
		return false
	}
	now := proc.Now()
	loss := Loss{Name: int(one.attempt.Name), At: c.know(one, 0), Cause: core.CauseName(one.lease.Err())}
	if loss.At == 0 { // the event is on its way
		loss.At = now
	}
	_ = release(one.lease) // it says that the lease was lost
	c.mu.Lock()
	c.news.Losses = append(c.news.Losses, loss)
	c.mu.Unlock()
	one.attempt.Ended, one.attempt.Done, one.attempt.End = now, now, record.EndLost
	c.count(one, false)
	c.over(one)
	return true
}

// release gives a lease back, if there is one.
func (c *leasePool) release(one *kept) {
	if one.lease == nil || c.lost(one) {
		return
	}
	a := &one.attempt
	c.know(one, 0)
	a.Ended, a.End = proc.Now(), record.EndReleased
	if release(one.lease) != nil {
		a.End = record.EndReleaseFailed
	}
	a.Done = proc.Now()
	c.over(one)
}

// over ends what one has.
func (c *leasePool) over(one *kept) {
	one.lease = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.news.Attempts = append(c.news.Attempts, one.attempt)
}
