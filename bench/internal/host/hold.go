package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/fence"
	"github.com/lockbench/lockbench/internal/proc"
)

const (
	// lookEvery is how often a holder asks its lease whether it is valid.
	lookEvery = 10 * time.Millisecond
	// prepare is how long a holder prepares each write after it has last checked
	// the lease.
	prepare = 250 * time.Millisecond
	// retryEvery is the pause after a failed acquire. The caller pauses and tries again
	// even after an error that looks permanent, because the store may be healed later.
	retryEvery = 100 * time.Millisecond
	// eventsBy is how long the host waits for the events of a lease after its end.
	eventsBy = time.Second
	// finishes is how long the work under a lock continues after it was told to end.
	finishes = 100 * time.Millisecond
)

// group is the work that one order has started. The work ends when the function stop is called.
type group struct {
	first int // number of its first lock
	stop  context.CancelFunc
	work  sync.WaitGroup
}

// begin adds a group to the agent, and returns it with the context of its work.
func (a *agent) begin(ctx context.Context, first int) (*group, context.Context) {
	ctx, stop := context.WithCancel(ctx)
	g := &group{first: first, stop: stop}
	a.groups = append(a.groups, g)
	return g, ctx
}

// release ends the groups whose first lock has the number in from or a higher number.
func (a *agent) release(from int) {
	var stay, end []*group
	for _, g := range a.groups {
		if g.first < from {
			stay = append(stay, g)
			continue
		}
		g.stop()
		end = append(end, g)
	}
	a.groups = stay
	for _, g := range end {
		g.work.Wait()
	}
}

// write writes under the lock, first at once and then again and again until stop is
// closed. Before each further write it checks the lease and prepares the write. A pause
// of the process during the preparation makes the write late, as in any program.
func (h *holding) write(name string, stop <-chan struct{}) {
	for {
		h.writeOnce(name)
		if !h.valid(false) {
			return
		}
		select {
		case <-time.After(prepare):
		case <-stop:
			return
		}
	}
}

// tenure is what a lease (of a lock) and a term (of a leader) have in common.
type tenure interface {
	Token() uint64
	Valid() bool
	Err() error
}

// holding is a tenure that this host holds.
type holding struct {
	tenure
	agent   *agent
	done    <-chan struct{} // closed when the tenure has ended or should end
	over    chan struct{}   // closed when no more events of the tenure can come
	writing sync.WaitGroup  // writes under the tenure
	watch   func()          // called after each check that finds the lease valid; may be nil

	mu     sync.Mutex
	record results.Hold
}

// granted reports a grant that call asked for. The TTL of the grant counts from sent.
func (a *agent) granted(t tenure, done <-chan struct{}, call *results.Call, sent int64) *holding {
	now := a.clock.Now()
	h := &holding{tenure: t, agent: a, done: done, over: make(chan struct{}), record: results.Hold{
		Host: a.spec.Host, Name: call.Name, Token: t.Token(), AskedNs: call.SentNs, GrantedNs: now, SentNs: sent, ValidNs: now,
	}}
	h.tell()
	return h
}

// hold checks again and again whether the lease is valid. It returns when the lease is invalid,
// or after a signal on end or stop, and the caller must then release the lease. When told that
// the lease is ending, it continues for the time finishes, as a function does.
func (a *agent) hold(stop <-chan struct{}, h *holding, every time.Duration, end <-chan time.Time) {
	look := time.NewTicker(every)
	defer look.Stop()
	told, over := h.done, false
	// Check the lease before the channel told, so that Valid is the first call after a pause.
	for h.valid(over) {
		if over {
			h.tell()
			return
		}
		select {
		case <-end:
			over = true
		case <-stop:
			over = true
		case <-told:
			told, end = nil, time.After(finishes)
		case <-look.C:
		}
		if over {
			h.writing.Wait()
		}
	}
	<-h.done
	done := a.clock.Now()
	h.change(func(r *results.Hold) { r.DoneNs, r.Cause = done, causeOf(h.Err()) })
	h.tell()
}

// causeOf returns the reason for a loss as text.
func causeOf(err error) string {
	if cause := core.CauseName(err); cause != "" || err == nil {
		return cause
	}
	return err.Error()
}

func (h *holding) change(f func(*results.Hold)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.record)
}

// tell reports the current state of the holding.
func (h *holding) tell() { h.change(func(r *results.Hold) { h.agent.send(note{Lease: r}) }) }

func (h *holding) renewed(sent, done int64) {
	h.change(func(r *results.Hold) {
		r.Renewals = append(r.Renewals, [2]int64{sent, done})
		h.agent.send(note{Lease: r})
	})
}

// valid reports whether the lease is valid. If the lease is valid, it records the
// time before the check. last means that the caller will now release the lease.
func (h *holding) valid(last bool) bool {
	before := h.agent.clock.Now()
	if !h.Valid() {
		return false
	}
	h.change(func(r *results.Hold) {
		r.ValidNs = max(r.ValidNs, before)
		if last {
			r.ReleaseNs = before
		}
	})
	if h.watch != nil {
		h.watch()
	}
	return true
}

// release releases the lease, even a lost lease, as a program with a deferred
// release does. Releasing a lost lease must not free the next holder's lock.
func (h *holding) release(l keptLease) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := l.Release(ctx)
	done := h.agent.clock.Now()
	h.change(func(r *results.Hold) {
		if err == nil && r.ReleaseNs > 0 {
			r.ReleasedNs = done
		}
	})
	return err
}

// keptLease is a lease that is renewed automatically and knows whether it is held.
type keptLease interface {
	tenure
	Done() <-chan struct{}
	Release(context.Context) error
}

// coreLease is a lease of package core.
type coreLease interface {
	keptLease
	Owner() string
	Deadline() time.Time
}

// sentOf returns when the request was sent from which the TTL of a lease counts, or 0 if it is
// unknown. A lease that the store granted to a queue entry is shorter, but is renewed at once.
func (a *agent) sentOf(lease any, call *results.Call, ttl time.Duration) int64 {
	switch l := lease.(type) {
	case coreLease:
		return max(call.SentNs, a.clock.Of(l.Deadline())-int64(ttl))
	case load.Untimed:
		return 0
	}
	return call.SentNs
}

// follow reports each confirmed renewal of a lease, until the function leave is
// called. A library that contains our core passes on no events, so a later deadline
// shows a renewal. follow also renews the leases of other libraries.
func (a *agent) follow(h *holding, of keptLease, ttl time.Duration) (leave func()) {
	lease, ok := of.(coreLease)
	switch {
	case !ok:
		a.renewing(of.(*kept), ttl, h)
		return func() {}
	case a.spec.Baseline != "":
		seen := lease.Deadline()
		h.watch = func() {
			if until := lease.Deadline(); until.After(seen) {
				seen = until
				h.renewed(a.clock.Of(until)-int64(ttl), a.clock.Now())
			}
		}
		return func() {}
	}
	id := leaseID{lease.Owner(), lease.Token()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[id] = h
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.held, id)
	}
}

// kept makes a keptLease of the lease of a library that neither renews leases nor
// knows whether they are held.
type kept struct {
	load.Lease
	done chan struct{}
	err  error // the reason for the loss of the lease; written before done is closed
	stop context.CancelFunc
	work sync.WaitGroup // renewals
}

func newKept(lease load.Lease) *kept {
	return &kept{Lease: lease, done: make(chan struct{}), stop: func() {}}
}

// renewing starts to renew a lease at every third of the TTL until the lease is
// released or lost. It reports the renewals.
func (a *agent) renewing(k *kept, ttl time.Duration, h *holding) {
	var ctx context.Context
	ctx, k.stop = context.WithCancel(context.Background())
	k.work.Go(func() {
		if err := a.renew(ctx, k.Lease, ttl, h.renewed); err != nil {
			k.err = fmt.Errorf("renewal: %w", err)
			close(k.done)
		}
	})
}

// renew renews a lease until ctx ends, and then returns nil. If the lease is
// lost, it returns the reason. It repeats a failed renewal until the TTL is
// over, unless the error says that the lease is lost.
func (a *agent) renew(ctx context.Context, lease load.Lease, ttl time.Duration, renewed func(sent, done int64)) error {
	confirmed, wait := a.clock.Now(), ttl/3
	for proc.Sleep(ctx, wait) {
		sent := a.clock.Now()
		bounded, cancel := context.WithTimeout(ctx, ttl/3)
		err := lease.Renew(bounded)
		cancel()
		switch {
		case err == nil:
			confirmed, wait = sent, ttl/3
			renewed(sent, a.clock.Now())
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, driver.ErrNotHeld), a.clock.Now() >= confirmed+int64(ttl):
			return err
		default:
			wait = min(retryEvery, ttl/3)
		}
	}
	return nil
}

// Valid returns false when the lease is known to be lost.
func (k *kept) Valid() bool {
	select {
	case <-k.done:
		return false
	default:
		return true
	}
}

// Done is closed when the lease is known to be lost.
func (k *kept) Done() <-chan struct{} { return k.done }

// Err returns the reason for a loss, or nil.
func (k *kept) Err() error {
	if k.Valid() {
		return nil
	}
	return k.err
}

// Release releases the lease, unless it was lost.
func (k *kept) Release(ctx context.Context) error {
	k.stop()
	k.work.Wait()
	if err := k.Err(); err != nil {
		return err
	}
	return k.Lease.Release(ctx)
}

// Resources are the files that holders write to. Each lock has a file of the lock's name,
// which a guard (a check of the token) protects, and a second file without a guard.
type Resources struct {
	Dir string `json:"dir"`
}

// writeOnce writes to the guarded file of a lock and to its file without a guard. It does not
// report a write that fails for another reason than the guard, because such a write has no effect.
func (h *holding) writeOnce(name string) {
	a, l := h.agent, &h.record // the fields that this function reads do not change
	path, text := filepath.Join(a.spec.Resources.Dir, name), strconv.AppendUint(nil, l.Token, 10)
	for _, guarded := range []bool{true, false} {
		n := results.Write{Host: l.Host, Name: l.Name, Token: l.Token, Guarded: guarded, SentNs: a.clock.Now()}
		var err error
		if guarded {
			err = fence.File{Path: path}.Write(l.Token, text)
		} else {
			err = os.WriteFile(path+"-bare", text, 0o644)
		}
		n.DoneNs = a.clock.Now()
		n.Refused = errors.Is(err, fence.ErrStale)
		if err == nil || n.Refused {
			a.send(note{Write: &n})
		}
	}
}
