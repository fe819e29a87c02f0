package mysql

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// owners remembers, for each owner, the requests that this process has sent and their outcome. A
// withdrawn owner whose requests were all answered needs no tombstone (a mark in the lock's row,
// which makes the store refuse the owner). Tombstones are expensive, because every statement on the
// row reads them for a minute or two. A lock with thousands of tombstones came to a standstill.
//
// An owner may be forgotten some time after its last request. If a forgotten owner is withdrawn, it
// gets a tombstone, which is safe. After a restart of the plugin, core withdraws an owner before
// the owner asks for a lock again. So the type remembers either all requests of an owner or none.
type owners struct {
	mu    sync.Mutex
	known kit.Recent[string, *owner]
	// gone has withdrawn owners. This process refuses their requests, so most need no tombstone.
	gone kit.Recent[string, struct{}]
}

const (
	// ownersKept is the largest number of owners that are remembered. At 10,000 new owners a second,
	// an owner is forgotten after 0.4 s.
	ownersKept = 4096
	// goneFor is the shortest time for which this process refuses a withdrawn owner. goneKept is the
	// largest number of withdrawn owners that are remembered. Any further owner gets a tombstone.
	goneFor  = time.Minute
	goneKept = 1 << 16
	// settleFor limits how long a withdrawal waits for replies to the owner's earlier requests.
	settleFor = 250 * time.Millisecond
)

// owner is the state of one owner. owners.mu guards the fields that are not atomic.
type owner struct {
	id     string
	busy   int           // requests under way
	lost   bool          // a request was sent and its outcome is unknown
	stands bool          // the owner may have a grant or a queue entry
	idle   chan struct{} // closed when busy falls to zero; nil if no goroutine waits

	leaves atomic.Bool   // the owner is withdrawn
	left   chan struct{} // closed when leaves is set; nil if no goroutine waits

	polls atomic.Int64 // the number of times that the owner has polled
}

func newOwners() *owners {
	return &owners{known: kit.Recent[string, *owner]{Limit: ownersKept}, gone: kit.Recent[string, struct{}]{Age: goneFor}}
}

// begin records the start of a request. It returns nil if the owner with this id was withdrawn.
func (os *owners) begin(id string) *owner {
	os.mu.Lock()
	defer os.mu.Unlock()
	if os.gone.Has(id) {
		return nil
	}
	o, known := os.known.Get(id)
	if !known {
		o = &owner{id: id}
	}
	os.known.Put(id, o) // again, so that an owner with a request under way is not forgotten
	o.busy++
	return o
}

// leaving returns a channel that is closed when the owner o is withdrawn.
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

// end records the end of a request. The parameter stands is true if the request may have left a
// grant or a queue entry in the store, and lost is true if the request's outcome is unknown.
func (os *owners) end(o *owner, stands, lost bool) {
	os.mu.Lock()
	defer os.mu.Unlock()
	os.known.Put(o.id, o) // again, as in begin
	o.busy--
	o.stands = o.stands || stands
	o.lost = o.lost || lost
	if o.busy == 0 && o.idle != nil {
		close(o.idle)
		o.idle = nil
	}
}

// withdraw makes the begin method refuse the owner with this id from now on, if the id is known. It
// waits at most settleFor for the owner's requests to end. If undo is true, the caller must remove
// the owner from the store. If tombstone is true, the caller must also put a tombstone into the
// lock's row.
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
