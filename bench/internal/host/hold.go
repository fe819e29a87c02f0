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
	// lookEvery is the default interval at which a holder checks whether its lease is valid.
	lookEvery = 10 * time.Millisecond
	// prepare is the time between the last check of a lease and the write under the lock.
	prepare = 250 * time.Millisecond
	// retryEvery is the pause before a caller asks again after an error. The caller asks again even
	// after an error that looks permanent, because the store may recover.
	retryEvery = 100 * time.Millisecond
	// eventsBy limits the wait for the client's last events about a lease that has ended.
	eventsBy = time.Second
	// finishes is how long a holder still works after it hears that its lease ends, as programs do.
	finishes = 100 * time.Millisecond
)

// group is the work that one order has started. A call of the stop function ends this work.
type group struct {
	first int // number of its first lock
	stop  context.CancelFunc
	work  sync.WaitGroup
}

func (a *agent) begin(ctx context.Context, first int) (*group, context.Context) {
	ctx, stop := context.WithCancel(ctx)
	g := &group{first: first, stop: stop}
	a.groups = append(a.groups, g)
	return g, ctx
}

// release ends each group whose first lock has at least the number in parameter from.
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

// write repeatedly writes to the lock's files until stop is closed or the lease is over. It checks
// the lease, and then prepares a write. If the process is frozen in this time, the write is late.
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

// tenure has the methods that a lease (of a lock) and a term (of a leader) have in common.
type tenure interface {
	Token() uint64
	Valid() bool
	Err() error
}

// holding is a tenure (a lease or a term) that this host holds.
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

// granted reports that a call got the lock. Parameter sent is when the TTL began, or 0 if unknown.
func (a *agent) granted(t tenure, done <-chan struct{}, call *results.Call, sent int64) *holding {
	now := a.clock.Now()
	h := &holding{tenure: t, agent: a, done: done, over: make(chan struct{}), record: results.Hold{
		Host: a.spec.Host, Name: call.Name, Token: t.Token(), AskedNs: call.SentNs, GrantedNs: now, SentNs: sent, ValidNs: now,
	}}
	if timed, ok := t.(interface{ Deadline() time.Time }); ok {
		h.record.UntilNs = a.clock.Of(timed.Deadline())
	}
	h.tell()
	return h
}

// hold checks again and again whether the lease is valid. It returns when the lease is no longer
// valid, or after a signal on the end or stop channel. The caller must then release the lease.
// After h.done is closed, hold goes on for the duration finishes.
func (a *agent) hold(stop <-chan struct{}, h *holding, every time.Duration, end <-chan time.Time) {
	look := time.NewTicker(every)
	defer look.Stop()
	told, over := h.done, false
	// Check the lease before the channels, so that a process that was frozen calls Valid first.
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

func (h *holding) tell() { h.change(func(r *results.Hold) { h.agent.send(note{Lease: r}) }) }

func (h *holding) renewed(sent, done int64) {
	h.change(func(r *results.Hold) {
		r.Renewals = append(r.Renewals, [2]int64{sent, done})
		h.agent.send(note{Lease: r})
	})
}

// valid reports whether the lease is valid. If it is, valid records the time just before this
// check. If last is true, valid records the same time as the beginning of the release.
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

// release releases the lease even if the lease was lost, as a program's deferred release does. Such
// a late release must not free the lock of the next holder.
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

// keptLease is a lease that core or this package renews. It reports whether it is still held.
type keptLease interface {
	tenure
	Done() <-chan struct{}
	Release(context.Context) error
}

type coreLease interface {
	keptLease
	Owner() string
	Deadline() time.Time
}

// sentOf returns the time of the request from which the lease's TTL counts, or 0 if it is unknown.
// A store may grant a waiter in its queue a lease that is shorter than the TTL. sentOf ignores
// this, because core renews such a lease at once.
func (a *agent) sentOf(lease any, call *results.Call, ttl time.Duration) int64 {
	switch l := lease.(type) {
	case coreLease:
		return max(call.SentNs, a.clock.Of(l.Deadline())-int64(ttl))
	case load.Untimed:
		return 0
	}
	return call.SentNs
}

// follow reports each confirmed renewal of a lease until the leave function is called. A baseline
// that uses package core reports no events, so follow takes a later deadline of the lease as a
// renewal. If the lease is not of package core, follow itself renews it.
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

// kept renews the lease of a library that does not renew leases, and records whether it is lost.
type kept struct {
	load.Lease
	held context.Context // ends when the lease is lost; its cause is the reason
	lose context.CancelCauseFunc
	stop context.CancelFunc
	work sync.WaitGroup // renewals
}

func newKept(lease load.Lease) *kept {
	held, lose := context.WithCancelCause(context.Background())
	return &kept{Lease: lease, held: held, lose: lose, stop: func() {}}
}

// renewing starts a goroutine that renews a lease every third of the TTL and reports each renewal.
// The goroutine ends when the lease is released or lost.
func (a *agent) renewing(k *kept, ttl time.Duration, h *holding) {
	var ctx context.Context
	ctx, k.stop = context.WithCancel(context.Background())
	k.work.Go(func() {
		if err := a.renew(ctx, k.Lease, ttl, h.renewed); err != nil {
			k.lose(fmt.Errorf("renewal: %w", err))
		}
	})
}

// renew renews a lease until ctx ends, and then returns nil. If the lease is lost, renew returns
// the reason. It repeats a failed renewal until one TTL after the last confirmed renewal.
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

// Valid returns false as soon as the loss of the lease is known.
func (k *kept) Valid() bool { return k.held.Err() == nil }

func (k *kept) Done() <-chan struct{} { return k.held.Done() }

func (k *kept) Err() error { return context.Cause(k.held) }

func (k *kept) Release(ctx context.Context) error {
	k.stop()
	k.work.Wait()
	if err := k.Err(); err != nil {
		return err
	}
	return k.Lease.Release(ctx)
}

// Resources names the directory of the files that holders write to. Each lock has two files. A
// guard of the first file refuses a write whose token is stale. The second file has no guard.
type Resources struct {
	Dir string `json:"dir"`
}

// writeOnce writes to the guarded file and to the unguarded file of a lock. It reports a write that
// succeeds or that the guard refuses. A write with any other error has no effect on the file.
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
