package etcd

import (
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// table records the keys that this process has put on shared leases. It deletes a key when the
// key's time is over, because etcd keeps the key as long as the lease lives. After a restart, the
// table is empty, so the first renewal or release of a lock reads the store.
type table struct {
	space   space
	cluster *cluster.Cluster
	txns    *txn.Writer
	leases  *leases
	watches *watch.Mux

	self    string // random text in the keys of this process's waiters
	wake    chan struct{}
	mu      sync.Mutex
	entries map[entryKey]*entry
	keys    map[string]*entry // by queue key; kept until the key is certainly gone
	first   time.Time         // no later than the earliest deadline; zero if there is none

	// These fields are used to find lost locks, by watching the locks' keys.
	fresh   []*entry   // not watched yet, oldest first
	suspect []*entry   // watched, but must be read because they may be gone
	looking sync.Mutex // locked while suspects are read
}

type entryKey struct{ name, owner string }

// The due method makes the run method wake up at the deadline d. The caller holds mu.
func (t *table) due(d time.Time) {
	if t.first.IsZero() || d.Before(t.first) {
		t.first = d
		kit.Wake(t.wake)
	}
}

func (t *table) find(name, owner string, token uint64) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[entryKey{name, owner}]
	if e == nil || !e.held || e.token() != token {
		return nil
	}
	return e
}

// adopt adds and returns the entry e, or returns the table's own entry for the same grant.
func (t *table) adopt(e *entry) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.entries[e.who()]
	if known == nil || known.rev != e.rev || !known.generation.Same(e.generation) {
		known = e
	}
	if !known.held {
		t.hold(known, e.deadline)
	}
	return known
}

// drop forgets the entry e, which is no longer in the store. It returns false
// if the table did not have e.
func (t *table) drop(e *entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remove(e)
}

// remove is like drop, but e may be nil, and the caller holds mu.
func (t *table) remove(e *entry) bool {
	if e == nil {
		return false
	}
	if t.keys[e.key] == e {
		delete(t.keys, e.key)
	}
	return t.detach(e)
}

// detach is like remove, but no new entry may use e's key yet. The caller holds mu.
func (t *table) detach(e *entry) bool {
	if e == nil || t.entries[e.who()] != e {
		return false
	}
	delete(t.entries, e.who())
	e.lease.load.Add(-1)
	t.watches.Drop(e.watch)
	return true
}

func (t *table) run() {
	var over []*entry
	for pause := time.Hour; ; {
		select {
		case <-t.wake:
		case <-time.After(pause):
		case <-t.cluster.Context().Done():
			return
		}
		over, pause = t.check(time.Now())
		for _, e := range over {
			t.erase(e)
		}
	}
}

// check opens watches of the locks held for 20 ms (young). It returns the entries whose time is
// over, and marks them, so that no renewal begins. It also returns the time until the next check.
func (t *table) check(now time.Time) (over []*entry, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.fresh) > 0 && now.Sub(t.fresh[0].since) >= young {
		e := t.fresh[0]
		t.fresh[0] = nil
		t.fresh = t.fresh[1:]
		t.watch(e)
	}
	if !t.first.IsZero() && !now.Before(t.first) {
		t.first = time.Time{}
		for _, e := range t.entries {
			switch {
			case e.ending, e.busy > 0: // due is called when the delete or the last operation ends
			case now.Before(e.deadline):
				t.due(e.deadline)
			default:
				e.ending = true
				over = append(over, e)
			}
		}
	}
	pause = time.Hour
	if !t.first.IsZero() {
		pause = t.first.Sub(now)
	}
	if len(t.fresh) > 0 {
		pause = min(pause, young-now.Sub(t.fresh[0].since))
	}
	return over, pause
}

// eraseAgain is the shortest pause after a delete that failed or got no answer.
const eraseAgain = 500 * time.Millisecond

// erase deletes the key of the entry e, whose time is over. It tries until the store says that the
// key is gone, because the renewal of other locks on the lease would keep the key alive. If e's put
// got no answer, the put may still arrive, so erase withdraws the owner.
func (t *table) erase(e *entry) {
	now := t.snapshot(e)
	if now.rev == 0 {
		t.cluster.Go(func() { t.ended(e, t.withdraw(t.cluster.Context(), e.name, e.owner, false)) })
		return
	}
	s := t.change(&now, txn.Delete(e.key))
	if now.short() && !now.unsure { // keep an entry that its owner has just moved to another lease
		s.Req.Compare = append(s.Req.Compare, txn.OnLease(e.key, now.lease.id))
	}
	s.Repeatable, s.Req.Failure = true, nil
	s.OnAnswer = func() { t.ended(e, s.Err) }
	t.txns.Submit(s)
}

// ended records the outcome of a delete of e's key. If another delete may help, the table deletes
// the key again at e's deadline. If the server denies the delete then, ended retires the key's
// lease (the lease is no longer renewed).
func (t *table) ended(e *entry, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	denied := cluster.Is(err, rpctypes.ErrPermissionDenied) && !time.Now().Before(e.deadline)
	switch {
	case denied && e.unsure:
		t.leases.retireAll() // the key may be on any lease
		fallthrough
	case denied:
		e.lease.retired.Store(true)
		fallthrough
	case err == nil, errors.Is(err, cluster.ErrDataLost):
		t.remove(e)
	case t.cluster.Context().Err() != nil:
	case t.entries[e.who()] == e:
		e.ending = false
		if again := time.Now().Add(eraseAgain); e.deadline.Before(again) {
			e.deadline = again
		}
		t.due(e.deadline)
		t.watchLater(e)
	default:
		time.AfterFunc(eraseAgain, func() { t.erase(e) })
	}
}
