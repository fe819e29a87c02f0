package mysql

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// owners remembers what this process has sent for an owner and the outcome. An
// owner whose requests were all answered then needs no tombstone when it is
// withdrawn. Every statement on the row reads a tombstone for a minute or two,
// and thousands of them brought a lock to a standstill.
//
// It may forget an owner at any time: one that it does not know gets a tombstone. An
// owner that has asked through an earlier process of the plugin is withdrawn by
// core before it asks again, so none is known here for half of its requests.
type owners struct {
	mu    sync.Mutex
	known kit.Recent[string, *owner]
	// gone were withdrawn without a tombstone: they are refused here.
	gone kit.Recent[string, struct{}]
}

const (
	// ownersKept is how many owners are kept before older ones are forgotten. At
	// 10,000 acquires a second that takes 0.4 s.
	ownersKept = 4096
	// goneFor is how long a withdrawn owner is refused at least, and goneKept
	// how many of them are remembered instead of having a tombstone.
	goneFor  = time.Minute
	goneKept = 1 << 16
	// settleFor bounds how long a withdrawal waits for requests under way.
	settleFor = 250 * time.Millisecond
)

// owner is the state of one owner. Its fields that are not atomic are guarded
// by owners.mu.
type owner struct {
	busy   int           // requests under way
	lost   bool          // one was sent and its outcome is unknown
	stands bool          // it may have a grant or a queue entry
	idle   chan struct{} // closed when busy falls to zero; nil when nobody waits for that

	leaves atomic.Bool   // it is withdrawn
	left   chan struct{} // closed then; nil when nobody waits for that

	polls atomic.Int64 // how often it has waited by polling
}

func newOwners() *owners {
	return &owners{known: kit.Recent[string, *owner]{Limit: ownersKept}, gone: kit.Recent[string, struct{}]{Age: goneFor}}
}

// begin counts a request of id. It returns nil for one that was withdrawn.
func (os *owners) begin(id string) *owner {
	os.mu.Lock()
	defer os.mu.Unlock()
	if os.gone.Has(id) {
		return nil
	}
	o, known := os.known.Get(id)
	if !known {
		o = &owner{}
		os.known.Put(id, o)
	}
	o.busy++
	return o
}

// leaving returns a channel that is closed when o is withdrawn.
func (os *owners) leaving(o *owner) <-chan struct{} {
	os.mu.Lock()
	defer os.mu.Unlock()
	if o.left == nil {
		o.left = make(chan struct{})
		if o.leaves.Load() {
			close(o.left)
		}
	}
	return o.left
}

// end records the outcome of a request: whether it may have left something in
// the store, and whether that is unknown.
func (os *owners) end(o *owner, stands, lost bool) {
	os.mu.Lock()
	defer os.mu.Unlock()
	o.busy--
	o.stands = o.stands || stands
	o.lost = o.lost || lost
	if o.busy == 0 && o.idle != nil {
		close(o.idle)
		o.idle = nil
	}
}

// withdraw refuses id from now on and waits until its requests are answered. It
// reports the work left in the store: none, to undo what stands there, or to
// put a tombstone too.
func (os *owners) withdraw(ctx context.Context, id string) (undo, tombstone bool) {
	os.mu.Lock()
	o, known := os.known.Get(id)
	if !known || os.gone.Len() >= goneKept {
		os.mu.Unlock()
		return true, true
	}
	os.gone.Put(id, struct{}{})
	if !o.leaves.Swap(true) && o.left != nil {
		close(o.left)
	}
	if o.busy > 0 {
		if o.idle == nil {
			o.idle = make(chan struct{})
		}
		idle := o.idle
		os.mu.Unlock()
		timer := time.NewTimer(settleFor)
		select {
		case <-idle:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		os.mu.Lock()
	}
	defer os.mu.Unlock()
	tombstone = o.busy > 0 || o.lost
	return tombstone || o.stands, tombstone
}
