package mysql

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// owners remembers, for each owner, the requests that this process has sent and
// their outcome. An owner whose requests were all answered needs no tombstone when
// it is withdrawn. Tombstones are expensive: every statement on the row reads them
// for a minute or two. Thousands of tombstones have brought a lock to a standstill.
//
// owners may forget an owner at any time, because an unknown owner gets a
// tombstone. After a restart of the plugin, core withdraws an owner before it
// asks again. So owners never knows only a part of an owner's requests.
type owners struct {
	mu    sync.Mutex
	known kit.Recent[string, *owner]
	// gone are withdrawn owners, which this process refuses. Most have no tombstone.
	gone kit.Recent[string, struct{}]
}

const (
	// ownersKept is how many owners are kept before older ones are forgotten.
	// At 10,000 acquires a second, an owner is forgotten after 0.4 s.
	ownersKept = 4096
	// goneFor is the least time for which a withdrawn owner is refused. goneKept is
	// how many withdrawn owners are remembered here in place of a tombstone.
	goneFor  = time.Minute
	goneKept = 1 << 16
	// settleFor bounds how long a withdrawal waits for requests under way.
	settleFor = 250 * time.Millisecond
)

// owner is the state of one owner. Its fields that are not atomic are guarded
// by owners.mu.
type owner struct {
	busy   int           // requests under way
	lost   bool          // a request was sent and its outcome is unknown
	stands bool          // the owner may have a grant or a queue entry
	idle   chan struct{} // closed when busy falls to zero; nil if no goroutine waits

	leaves atomic.Bool   // the owner is withdrawn
	left   chan struct{} // closed when leaves is set; nil if no goroutine waits

	polls atomic.Int64 // how often the owner has waited by polling
}

func newOwners() *owners {
	return &owners{known: kit.Recent[string, *owner]{Limit: ownersKept}, gone: kit.Recent[string, struct{}]{Age: goneFor}}
}

// begin counts a request of the owner id. It returns nil if that owner was withdrawn.
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

// end records the outcome of a request. stands says that the request may have
// left something in the store, and lost says that its outcome is unknown.
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

// withdraw refuses the owner id from now on, if owners knows it, and waits for its requests,
// for at most settleFor. It returns what remains to be done in the store: undo says to
// delete what the requests left, and tombstone says to put a tombstone too.
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
