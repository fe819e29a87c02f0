package host

import (
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/results"
)

const (
	// lookEvery is how often a holder asks its lease whether it is valid.
	lookEvery = 10 * time.Millisecond
	// prepare is how long a holder prepares each write, after it has found its
	// lease valid for the last time.
	prepare = 250 * time.Millisecond
	// retryEvery is the pause after an acquire that has failed: a store that
	// refuses for good today may be healed.
	retryEvery = 100 * time.Millisecond
	// eventsBy is how long after its end the events of a lease are waited for.
	eventsBy = time.Second
	// finishes is how long a function goes on that was told to end.
	finishes = 100 * time.Millisecond
)

// group is what one order has started, until stop is called.
type group struct {
	first int // number of its first lock
	stop  context.CancelFunc
	work  sync.WaitGroup
}

// begin returns a group of the agent's, and the context of its work.
func (a *agent) begin(ctx context.Context, first int) (*group, context.Context) {
	ctx, stop := context.WithCancel(ctx)
	g := &group{first: first, stop: stop}
	a.groups = append(a.groups, g)
	return g, ctx
}

// release ends the groups whose first lock has the number from or a higher one.
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

// write does what locks are for: it looks at the lease, prepares a write, and
// writes, once at once and then over and over, until stop. A pause of the process
// while it prepares makes the write late, as in every program.
func (h *holding) write(name string, stop <-chan struct{}) {
	for {
		h.agent.writer.write(h, name)
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

// tenure is a lease, or a term.
type tenure interface {
	Token() uint64
	Valid() bool
	Err() error
}

// holding is one in hand.
type holding struct {
	tenure
	agent   *agent
	done    <-chan struct{} // closed when it ends, or is to end
	over    chan struct{}   // closed when there are no more events of it
	writing sync.WaitGroup  // under it
	watch   func()          // called with each look that finds it valid; nil for nothing

	mu     sync.Mutex
	record results.Hold
}

// granted tells of a grant that was called for by call, and whose time begins with
// what was sent then.
func (a *agent) granted(t tenure, done <-chan struct{}, call *results.Call, sent int64) *holding {
	now := a.clock.Now()
	h := &holding{tenure: t, agent: a, done: done, over: make(chan struct{}), record: results.Hold{
		Host: a.spec.Host, Name: call.Name, Token: t.Token(), AskedNs: call.SentNs, GrantedNs: now, SentNs: sent, ValidNs: now,
	}}
	h.tell()
	return h
}

// hold asks again and again whether what is held is valid, until it is not, or
// until end or stop, when it is about to be released. A function that is told to
// end does not do so at once.
func (a *agent) hold(stop <-chan struct{}, h *holding, every time.Duration, end <-chan time.Time) {
	look := time.NewTicker(every)
	defer look.Stop()
	told, over := h.done, false
	// Before told is looked at: after a pause this is the first call.
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

// causeOf is the reason for a loss.
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

// tell tells what is known of it now.
func (h *holding) tell() { h.change(func(r *results.Hold) { h.agent.send(note{Lease: r}) }) }

func (h *holding) renewed(sent, done int64) {
	h.change(func(r *results.Hold) {
		r.Renewals = append(r.Renewals, [2]int64{sent, done})
		h.agent.send(note{Lease: r})
	})
}

// valid asks the lease, and notes the time before a yes. After the last one it
// is about to be released.
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

// release releases the lease that is held, also one that was lost, as programs
// do that have deferred it: it must not free the next one's.
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
