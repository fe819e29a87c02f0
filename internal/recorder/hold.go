package recorder

import (
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/record"
)

const (
	// lookEvery is how often a holder asks its lease whether it is valid.
	lookEvery = 10 * time.Millisecond
	// prepare is how long a holder prepares each write, after it has found its
	// lease valid for the last time.
	prepare = 250 * time.Millisecond
	// retryEvery is the pause after an acquire that has failed.
	retryEvery = 100 * time.Millisecond
	// eventsBy is how long after its end the events of a lease are waited for.
	eventsBy = time.Second
)

// group is what one order has started, until stop is closed.
type group struct {
	first int // number of its first lock
	stop  chan struct{}
	work  sync.WaitGroup
}

// begin returns a group of the agent's.
func (a *agent) begin(first int) *group {
	g := &group{first: first, stop: make(chan struct{})}
	a.groups = append(a.groups, g)
	return g
}

// acquire starts one holder for each name.
func (a *agent) acquire(o order) {
	g := a.begin(o.First)
	for i, name := range o.Names {
		g.work.Go(func() { a.hold(g.stop, name, o.First+i, o) })
	}
}

// release ends the groups whose first lock has the number from or a higher one.
func (a *agent) release(from int) {
	var stay, end []*group
	for _, g := range a.groups {
		if g.first < from {
			stay = append(stay, g)
			continue
		}
		close(g.stop)
		end = append(end, g)
	}
	a.groups = stay
	for _, g := range end {
		g.work.Wait()
	}
}

// hold acquires one lock, and holds it until it is lost or stop closes.
func (a *agent) hold(stop chan struct{}, name string, number int, o order) {
	lock, err := a.present().Lock(name, &core.LockOptions{TTL: o.TTL})
	if err != nil {
		a.send(note{Failed: err.Error()})
		return
	}
	ctx, cancel := until(stop)
	defer cancel()
	ctx, done := context.WithTimeout(ctx, o.Timeout)
	defer done()
	var asked, granted int64
	var lease *core.Lease
	for {
		asked = proc.Now()
		lease, err = lock.Acquire(ctx)
		granted = proc.Now()
		if err == nil {
			break
		}
		if !again(ctx) {
			a.send(note{Failed: err.Error()})
			return
		}
	}
	h := &holding{lease: lease, over: make(chan struct{}), record: record.Lease{
		Host: a.spec.Host, Name: number, Token: lease.Token(), AskedNs: asked, GrantedNs: granted, ValidNs: granted,
	}}
	id := leaseID{lease.Owner(), lease.Token()}
	a.mu.Lock()
	a.held[id] = h
	a.mu.Unlock()
	a.send(note{Lease: h.state()})
	worked := make(chan struct{})
	go func() {
		a.work(h, stop)
		close(worked)
	}()
	a.end(h, stop, worked)
	<-worked
	select {
	case <-h.over: // its renewals are in the record
	case <-time.After(eventsBy): // it was lost before we had entered it
	}
	a.mu.Lock()
	delete(a.held, id)
	a.mu.Unlock()
	a.send(note{Lease: h.state()})
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

// again waits a moment before another acquire: a store that refuses for good
// today may be healed. It returns false when ctx has ended.
func again(ctx context.Context) bool { return proc.Sleep(ctx, retryEvery) }

// end asks a lease again and again whether it is valid, until it is not or stop
// closes. It releases one that is not lost when the work under it is done.
func (a *agent) end(h *holding, stop, worked chan struct{}) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	// Before Done is looked at: after a pause this is the first call.
	for over := false; !over && h.valid(); {
		select {
		case <-h.lease.Done():
			over = true
		case <-stop:
			over = true
		case <-look.C:
		}
	}
	select {
	case <-h.lease.Done():
	case <-stop:
		<-worked
		if a.releaseValid(h) {
			return
		}
	}
	<-h.lease.Done()
	done := proc.Now()
	h.change(func(r *record.Lease) { r.DoneNs, r.Cause = done, core.CauseName(h.lease.Err()) })
	a.send(note{Lease: h.state()})
	// As programs do that have deferred it: it must not free the next one's.
	_ = release(h.lease) // most often it says that the lease was lost
}

// releaseValid releases a lease that is valid at that moment, and returns false
// for another.
func (a *agent) releaseValid(h *holding) bool {
	sent := proc.Now()
	if !h.lease.Valid() {
		return false
	}
	h.change(func(r *record.Lease) { r.ReleaseNs = sent })
	if release(h.lease) == nil {
		done := proc.Now()
		h.change(func(r *record.Lease) { r.ReleasedNs = done })
	}
	return true
}

func release(l *core.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return l.Release(ctx)
}

// holding is one lease in hand.
type holding struct {
	lease *core.Lease
	over  chan struct{} // closed when there are no more events of it

	mu     sync.Mutex
	record record.Lease
}

func (h *holding) change(f func(*record.Lease)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.record)
}

func (h *holding) state() *record.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.record.Clone()
}

func (h *holding) renewed(sent, done int64) {
	h.change(func(r *record.Lease) { r.Renewals = append(r.Renewals, [2]int64{sent, done}) })
}

// valid asks the lease, and notes the time before a yes.
func (h *holding) valid() bool {
	before := proc.Now()
	if !h.lease.Valid() {
		return false
	}
	h.change(func(r *record.Lease) {
		// A release that began meanwhile ends what the holder believes.
		if r.ReleaseNs == 0 || before < r.ReleaseNs {
			r.ValidNs = max(r.ValidNs, before)
		}
	})
	return true
}

// work does what locks are for: it looks at the lease, prepares a write, and
// writes, once at once and then over and over. A pause of the process while it
// prepares makes the write late, as in every program.
func (a *agent) work(h *holding, stop chan struct{}) {
	r := h.state()
	a.writer.write(a, h.lease.Name(), r)
	for h.valid() {
		select {
		case <-time.After(prepare):
		case <-stop:
			return
		}
		a.writer.write(a, h.lease.Name(), r)
	}
}
