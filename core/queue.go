package core

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// A host's turn with a lock ends when it has handed the lock over minStreak times
// without asking the store and the store's grant is minStreakTime old. Other hosts
// then get their turn in the store (K5). Without minStreakTime, a host whose
// goroutines hold the lock for microseconds would ask the store for every ninth lease.
const (
	minStreak     = 8
	minStreakTime = 10 * time.Millisecond
)

// queues holds the goroutines of this host that want a lock: one queue for each name,
// first come, first served. Only the head of a queue contends in the store (K5).
// While a lease of this host is live, the head waits for the end of that lease. When
// that lease is released, the head gets the lock without a request: the next [Lease]
// has the same owner and the same grant in the store, and a higher token.
//
// A hand-over gives the same guarantees as a release and a grant in the store:
//
//   - One holder. The previous lease is over, its Done closed and its contexts
//     ended, in the same critical section of the scheduler's mutex in which the
//     next lease begins. All code that ends, renews or loses a lease holds that
//     mutex and so finds exactly one of the two leases.
//   - Deadlines. The next lease keeps the deadline of the previous one: counted from
//     the sending of the last request that the store has confirmed for this grant,
//     or of the sign of life before a grant that the store made by itself. Only a
//     renewal moves the deadline. The deadline is compared with a clock that counts
//     suspends, so no caller is handed a lease that expired while this process or
//     machine stalled, nor a lease that will expire soon.
//   - Tokens rise. Each hand-over adds one to the token. A later grant of the store has
//     a higher grant number, and so a higher token than every hand-over before it.
//   - Doubt. A lease whose renewal has failed, or whose plugin or store is down, is not handed
//     over but released in the store. The same holds for a lease of a client that closes.
//   - Loss. To the store, leases that follow each other are one lease. The answer
//     to a renewal that was sent for one of them applies to the lease that has the
//     lock by then. A notice of the backend or a Break also applies to that lease.
//   - Death. The plugin knows owner and grant, which stay the same: if the host dies
//     between hand-overs, the plugin releases the lock. A restarted plugin learns owner
//     and grant from the first renewal. A lock with AtLeast, which the plugin must know
//     too, or with a value, which others read in the store, is not handed over.
//
// A hand-over omits one thing: the store is not asked between two holders of one host.
// If the lease was broken or taken in the store, the backend's watch or the next
// renewal reports that, as it would if one goroutine held the lock for all that time.
type queues struct {
	seed   maphash.Seed
	shards [64]shard
}

type shard struct {
	mu     sync.Mutex
	names  map[string]*queue  // only names that have a head or a holder
	others map[string]instant // for some locks, until when other hosts are assumed to want them
}

// mostOthers is how many names the map others of a shard may hold.
const mostOthers = 64

// queue is the queue of one name. The shard's mutex guards the queue, and
// also the fields of contender whose comment says so.
type queue struct {
	head   *contender
	rest   []*contender
	holder *Lease  // the live lease of this host, or a lease whose end is not announced yet
	since  instant // time of the store's grant under which holder has the lock
	streak int     // number of hand-overs under that grant
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

// join puts a at the end of the queue of its name. It reports whether a may ask the store at once.
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

// leave removes a from the queue, and wakes the next contender if a was the head.
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

// granted makes lease the holder of its name, and removes its contender
// (nil for a TryAcquire) from the queue. It returns the previous holder, or
// nil: the grant proves that the previous lease is gone.
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

// pass hands lease's lock to the head, if the head waits for that and this host's turn is not
// over. It reports whether it did. succeed must make the head's lease and end lease.
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

// ended records that lease, which is over, holds nothing. It wakes the head, which may ask the
// store.
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

// want records that other hosts are assumed to want the lock name until the given instant.
func (q *queues) want(name string, until instant) {
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others == nil || len(s.others) >= mostOthers {
		s.others = map[string]instant{}
	}
	s.others[name] = until
}

// wanted reports whether other hosts are assumed to want the lock name.
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

// nextStep returns what a must do next. A contender that must wait gets a
// signal when its next step has changed, and may be handed the lock. If
// insist is true, the head asks the store although this host holds the lock.
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

// stopWaiting ends the wait of a contender that gives up. It returns false if the
// lock was handed to the contender before that.
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
// host that has waited longest (K5). If l must be released in the store
// instead, handOver does nothing and returns false; see [queues].
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

// successor makes the lease that a gets after l. The new lease takes over l's
// deadline and a renewal of l that is under way. If none is under way and the
// last confirmed request is minStreakTime old, the new lease is renewed at once.
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
