package core

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// A host's turn ends when it has handed a lock over minStreak times without
// asking the store, and the store's grant is minStreakTime old: then other hosts
// get their turn in the store (K5). Without the time, a host whose goroutines
// hold a lock for microseconds would go to the store for every ninth of them.
const (
	minStreak     = 8
	minStreakTime = 10 * time.Millisecond
)

// queues order the goroutines of this host that want a lock: per name, first
// come, first served. Only the head of a queue contends in the store (K5). While
// a lease of this host is live, the head waits for the end of that lease. When
// that lease is released, the head gets the lock without a request: the next
// [Lease] has the same owner and the same grant in the store, and a higher token.
//
// A resource sees the same as if the lock had gone through the store:
//
//   - One holder. The lease before is over, its Done closed and its contexts
//     ended, in the critical section of the scheduler's mutex in which the next
//     one begins. Whatever ends, renews or loses a lease takes that mutex and
//     finds one of them, never both and never none.
//   - Deadlines. The next lease takes the deadline over as it is: counted from
//     the sending of the last request that the store has confirmed for this
//     grant, or of the sign of life before a grant of the store's own. No
//     hand-over moves it, only a renewal does. It is compared with a clock that
//     counts suspends, so that no caller is handed a lease that ran out while this
//     process or machine stalled, nor one that soon will.
//   - Tokens rise within a grant, and a later grant of the store has a higher
//     number, and so a higher token than every hand-over before it.
//   - Doubt ends it. A lease whose renewal has failed, or whose plugin or store is
//     down, is released in the store, and so is one of a client that closes.
//   - Loss. Leases that follow each other are one lease to the store. A renewal
//     that was sent for one of them counts, and ends with it, whoever holds the
//     lock by then; a notice and a Break do the same.
//   - Death. The plugin knows owner and grant, which stay: it releases what a
//     host that died in a streak held, and a plugin that was started again learns
//     it from the first renewal. A shortest hold (AtLeast), which a plugin must
//     know too, and a value, which others read in the store, go through the store.
//
// A hand-over skips one thing: the store's opinion between two holders of one host.
// If the lease was broken or taken in the store, its watch or its next renewal
// finds that out, as it would if one goroutine held the lock for that long.
type queues struct {
	seed   maphash.Seed
	shards [64]shard
}

type shard struct {
	mu     sync.Mutex
	names  map[string]*queue  // entries in use only
	others map[string]instant // until when other hosts are assumed to want a lock, for some of the locks
}

// mostOthers bounds the names for which a shard notes that other hosts want them.
const mostOthers = 64

// queue is guarded by its shard's mutex, and so are the fields of contender
// whose comment says so.
type queue struct {
	head   *contender
	rest   []*contender
	holder *Lease  // the live lease of this host, or one whose end is not announced yet
	since  instant // time of the store's grant to holder, or to the leases before it
	streak int     // hand-overs of that grant
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

// waiting reports whether a goroutine of this host waits for name.
func (q *queues) waiting(name string) bool {
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.names[name]
	return e != nil && e.head != nil
}

// granted makes lease the holder of its name, and takes its contender (nil
// for a TryAcquire) out of the queue. It returns the lease that was the
// holder before: the grant proves that this lease is gone.
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
	e.since, e.streak = lease.since, 0
	return before
}

// pass makes the head the holder after lease, if the head waits for that and its
// host's turn is not over. succeed makes the head's lease and ends the one before.
func (q *queues) pass(lease *Lease, now instant, succeed func(*contender) *Lease) bool {
	s := q.shard(lease.lock.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.names[lease.lock.name]
	if e == nil || e.holder != lease || e.othersTurn(now) {
		return false
	}
	a := e.head
	if a == nil || !a.waits || a.queued || !a.lock.inherits(lease.lock) {
		return false
	}
	a.lease = succeed(a)
	e.holder = a.lease
	e.streak++
	e.remove(a)
	a.wake()
	return true
}

func (e *queue) othersTurn(now instant) bool {
	return e.streak >= maxHandovers || e.streak >= minStreak && now.sub(e.since) >= minStreakTime
}

// ended reports that lease holds nothing any more: the head may ask the store.
func (q *queues) ended(lease *Lease) {
	name := lease.lock.name
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.names[name]
	if e == nil || e.holder != lease {
		return
	}
	e.holder = nil
	if e.head != nil {
		e.head.wake()
	}
	s.drop(name, e)
}

// want notes that other hosts seem to want name until the given instant.
func (q *queues) want(name string, until instant) {
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others == nil || len(s.others) >= mostOthers {
		s.others = map[string]instant{}
	}
	s.others[name] = until
}

// wanted reports whether other hosts seem to want name.
func (q *queues) wanted(name string, now instant) bool {
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return now < s.others[name]
}

// holder returns the live lease of this host, or nil.
func (q *queues) holder(name string) *Lease {
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.names[name]; e != nil {
		return e.holder
	}
	return nil
}

// step is the next action of a contender.
type step int

const (
	stepAsk  step = iota // ask the store
	stepHead             // wait for the lease of this host to end, as the head
	stepRest             // wait to become the head
	stepTake             // take the lease that was handed over
)

// nextStep says what a does next. A contender that is told to wait gets a
// signal when that changes, and may be handed the lock. insist makes the
// head ask the store although this host holds the lock.
func (q *queues) nextStep(a *contender, insist bool) step {
	s := q.shard(a.lock.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(a.lock.name)
	a.waits = false
	if a.lease != nil {
		return stepTake
	}
	if e.head == a && (e.holder == nil || insist || a.expiresBy != 0) {
		return stepAsk
	}
	a.waits = true
	if a.signal == nil {
		a.signal = make(chan struct{}, 1)
	}
	if e.head == a {
		return stepHead
	}
	return stepRest
}

// stopWaiting ends the wait of a contender that gives up. It returns false when the
// lock was handed to it just now.
func (q *queues) stopWaiting(a *contender) bool {
	s := q.shard(a.lock.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	a.waits = false
	return a.lease == nil
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

// handOver ends l and passes its grant in the store to the goroutine of this
// host that has waited longest (K5). It returns false, and has done nothing,
// when l must be released in the store instead; see [queues].
func (s *scheduler) handOver(ctx context.Context, l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.clock.now()
	if !l.alive.Load() || l.state != Held || l.leaving || s.c.closing.Load() || l.maxAt <= now || now < l.keepBy {
		return false
	}
	if left := instant(l.deadline.Load()).sub(now); left < l.span/2 {
		return false
	}
	return s.c.queues.pass(l, now, func(a *contender) *Lease {
		next := l.successor(a, now)
		s.finish(l, Released, ErrReleased)
		ev := l.event(EventReleased, 0, nil)
		ev.Context = ctx
		s.stop(l, ev)
		l.gone = true
		next.known = s.c.events.add(next.event(EventAcquired, now.sub(a.began), nil))
		s.enter(next)
		return next
	})
}

// successor makes the lease that a has after l. The new lease takes over the
// last request that the store has confirmed for l, and a renewal under way.
// If none is under way, the new lease is renewed at once.
func (l *Lease) successor(a *contender, now instant) *Lease {
	g := grant{token: l.token, sent: now, got: now}
	g.token++
	next := newLease(a, l.owner, g)
	next.deadline.Store(l.deadline.Load())
	next.span, next.endAt, next.expiresBy = l.span, l.endAt, l.expiresBy
	confirmed := l.endAt.add(-lifeOf(l.span))
	next.due = min(l.due, confirmed.add(a.lock.opts.RenewEvery))
	if now.sub(confirmed) >= minStreakTime {
		next.due = now
	}
	if f := l.renewal; f != nil && f.sent {
		f.leases[slices.Index(f.leases, l)] = next
		next.renewal, next.again = f, l.again
	}
	return next
}
