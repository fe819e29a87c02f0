package core

import (
	"hash/maphash"
	"slices"
	"sync"
)

// maxStreak is how many times in a row a lock is handed over inside the host,
// before others get their turn in the store (K5).
const maxStreak = 8

// queues order the goroutines of this host that want a lock: per name, first
// come, first served. Only the head of a queue contends in the store (K5), and
// while a lease of this host is live it waits for that one's end.
type queues struct {
	seed   maphash.Seed
	shards [64]shard
}

type shard struct {
	mu    sync.Mutex
	names map[string]*queue // entries in use only
}

// queue is guarded by its shard's mutex, and so are the fields of contender
// that say so.
type queue struct {
	head   *contender
	rest   []*contender
	holder *Lease // the live lease of this host, or one whose end is not told yet
	streak int    // hand-overs since the last plain grant
}

func (q *queues) init() {
	q.seed = maphash.MakeSeed()
	for i := range q.shards {
		q.shards[i].names = map[string]*queue{}
	}
}

func (q *queues) shard(name string) *shard {
	return &q.shards[maphash.String(q.seed, name)%uint64(len(q.shards))]
}

// join puts a at the end of the queue of its name. It reports whether a may
// ask the store at once.
func (q *queues) join(a *contender) bool {
	s := q.shard(a.lock.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(a.lock.name)
	if e.head == nil {
		e.head = a
		return e.holder == nil
	}
	e.rest = append(e.rest, a)
	return false
}

// leave takes a out of the queue, and wakes the next one if a was the head.
func (q *queues) leave(a *contender) {
	s := q.shard(a.lock.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.names[a.lock.name]; e != nil {
		e.remove(a)
		s.drop(a.lock.name, e)
	}
}

// waiting reports whether anybody of this host waits for name.
func (q *queues) waiting(name string) bool {
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.names[name]
	return e != nil && e.head != nil
}

// granted makes lease the holder of its name, and takes its contender (nil for
// a TryAcquire) out of the queue. It returns the lease that was the holder so
// far: the grant proves that one gone.
func (q *queues) granted(lease *Lease, a *contender) (before *Lease) {
	name := lease.lock.name
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(name)
	if a != nil {
		e.remove(a)
	}
	before, e.holder = e.holder, lease
	return before
}

// ended tells that lease holds nothing any more: the head may ask the store.
func (q *queues) ended(lease *Lease) {
	name := lease.lock.name
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.names[name]
	if e == nil || e.holder != lease {
		return
	}
	e.holder, e.streak = nil, 0
	if e.head != nil {
		e.head.wake()
	}
	s.drop(name, e)
}

// holder returns the live lease of this host, nil if there is none.
func (q *queues) holder(name string) *Lease {
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.names[name]; e != nil {
		return e.holder
	}
	return nil
}

// claim returns the contender to which lease may be handed over, nil if there
// is none. It stays the head, and stays parked, until settle or unclaim.
func (q *queues) claim(lease *Lease) *contender {
	name := lease.lock.name
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.names[name]
	if e == nil || e.holder != lease || e.head == nil || !e.head.parked || e.streak >= maxStreak {
		return nil
	}
	e.streak++
	e.head.claimed = true
	return e.head
}

// settle hands lease, from a handover, to the claimed contender.
func (q *queues) settle(a *contender, lease *Lease) {
	s := q.shard(a.lock.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(a.lock.name)
	a.claimed, a.lease = false, lease
	e.holder = lease
	e.remove(a)
	a.wake()
}

// unclaim sends the claimed contender back to wait. A freeBy that is not zero
// tells that its owner may have been granted the lock, and until when.
func (q *queues) unclaim(a *contender, freeBy instant) {
	s := q.shard(a.lock.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	a.claimed, a.freeBy = false, max(a.freeBy, freeBy)
	a.wake()
}

// step is what a contender does next.
type step int

const (
	stepAsk  step = iota // ask the store
	stepHead             // wait for the lease of this host to end, as the head
	stepRest             // wait to become the head
	stepTake             // take the lease that was handed over
)

// park says what a does next. Whoever is told to wait gets a signal when that
// changes, and may be claimed by a release. insist makes the head ask the
// store although this host holds the lock.
func (q *queues) park(a *contender, insist bool) step {
	s := q.shard(a.lock.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(a.lock.name)
	a.parked = false
	if a.lease != nil {
		return stepTake
	}
	if e.head == a && !a.claimed && (e.holder == nil || insist || a.freeBy != 0) {
		return stepAsk
	}
	a.parked = true
	if a.signal == nil {
		a.signal = make(chan struct{}, 1)
	}
	if e.head == a {
		return stepHead
	}
	return stepRest
}

// unpark ends the wait of a contender that gives up. It returns false when the
// contender is claimed just now: the handover decides first.
func (q *queues) unpark(a *contender) bool {
	s := q.shard(a.lock.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.claimed || a.lease != nil {
		return false
	}
	a.parked = false
	return true
}

func (s *shard) entry(name string) *queue {
	e := s.names[name]
	if e == nil {
		e = &queue{}
		s.names[name] = e
	}
	return e
}

func (s *shard) drop(name string, e *queue) {
	if e.head == nil && e.holder == nil {
		delete(s.names, name)
	}
}

func (e *queue) remove(a *contender) {
	if e.head != a {
		if i := slices.Index(e.rest, a); i >= 0 {
			e.rest = slices.Delete(e.rest, i, i+1)
		}
		return
	}
	e.head = nil
	if len(e.rest) > 0 {
		e.head = e.rest[0]
		e.rest[0] = nil
		e.rest = e.rest[1:]
		e.head.wake()
	}
}
