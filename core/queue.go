package core

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// While goroutines of a host wait, the host hands the lock over at least minStreak times and until
// the store's grant is minStreakTime old, but at most maxHandovers times. The release after that
// goes to the store, so that other hosts can get the lock (K5). Without minStreakTime, a host whose
// goroutines hold the lock for microseconds would ask the store for every ninth lease.
const (
	minStreak     = 8
	minStreakTime = 10 * time.Millisecond
)

// queues holds the goroutines of this host that wait for a lock. Each lock has one queue, which is
// first come, first served. Only the first goroutine of a queue (its head) asks the store (K5).
// While this host has a live lease of the lock, the head waits for its end. When the holder
// releases that lease, the host hands the lock over to the head without a request to the store. The
// head's new [Lease] has the same owner and the same grant in the store, and a higher token.
//
// A hand-over gives the same guarantees as a release and a new grant in the store:
//
//   - One holder. The old lease ends and the new lease begins while the scheduler's mutex is held.
//     All code that ends, renews or loses a lease holds that mutex, so it finds exactly one of the
//     two leases.
//   - Deadlines. The new lease keeps the deadline of the old lease. Only a renewal moves the
//     deadline. The host hands over no lease that has expired or will expire soon. The host's
//     clock also counts the time during which the machine is suspended.
//   - Tokens rise. Each hand-over adds one to the token. A later grant of the store has a higher
//     token than all hand-overs of an earlier grant.
//   - Doubt. The host does not hand over a lease if a renewal has failed, the plugin or store is
//     down, or the client closes. It releases such a lease in the store.
//   - Loss. To the store, all leases under one grant are one lease. An answer to a renewal, a
//     notice of the backend or a Break applies to the lease that has the lock when it arrives.
//   - Death. If the host dies, the plugin releases the lock. The plugin knows the owner and the
//     grant, because a hand-over changes neither. A restarted plugin gets both from the first
//     renewal. A goroutine that asks for AtLeast gets no hand-over, because the plugin would not
//     know the AtLeast of that goroutine. Locks with a value are not handed over, because other
//     hosts read the value in the store.
//
// But a hand-over does not check that the store still has the grant. If the lease was broken or
// taken in the store, the Watch method of the backend or the next renewal reports the loss, as it
// does without a hand-over.
type queues struct {
	seed   maphash.Seed
	shards [64]shard
}

type shard struct {
	mu     sync.Mutex
	names  map[string]*queue  // only names with a head or a holder
	others map[string]instant // by lock name: until when other hosts are assumed to want the lock
}

// mostOthers is the largest number of lock names in the field others of one shard.
const mostOthers = 64

// queue is the queue of one lock, guarded by the shard's mutex.
type queue struct {
	head   *contender
	rest   []*contender
	holder *Lease  // this host's live lease, or an ended lease that the ended method has not removed yet
	since  instant // when the answer with holder's grant arrived
	streak int     // number of hand-overs since that grant
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

// join adds the contender a to its queue, and reports whether it must ask the store at once.
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

// leave removes the contender a from its queue. If the head leaves, leave wakes the next contender.
func (q *queues) leave(a *contender) {
	s := q.shard(a.lock.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.names[a.lock.name]; e != nil {
		e.remove(a)
		s.drop(a.lock.name, e)
	}
}

// The waiting method reports whether a goroutine of this host waits for the named lock.
func (q *queues) waiting(name string) bool {
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.names[name]
	return e != nil && e.head != nil
}

// The granted method records that the given lease holds its lock, and removes the contender a from
// the queue. It returns the lease that this host recorded as the holder before, or nil.
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

// pass hands the lock of the given lease over to the head of the queue and returns true. If the
// head cannot take the lock now, or if other hosts must get a turn, pass does nothing and returns
// false. The succeed function must end the given lease and return the head's new lease.
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

// The ended method records the lease's end, and wakes the head, which may then ask the store.
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

// After a call of want, this host assumes until the given instant that other hosts want the lock.
func (q *queues) want(name string, until instant) {
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others == nil || len(s.others) >= mostOthers {
		s.others = map[string]instant{}
	}
	s.others[name] = until
}

func (q *queues) wanted(name string, now instant) bool {
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return now < s.others[name]
}

func (q *queues) holder(name string) *Lease {
	s := q.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.names[name]; e != nil {
		return e.holder
	}
	return nil
}

// step is what a contender, a goroutine in Acquire, does next.
type step int

const (
	stepAsk  step = iota // ask the store
	stepHead             // wait, as the head, for this host's lease to end
	stepRest             // wait to become the head
	stepTake             // take the lease that was handed over
)

// nextStep returns what the contender a does next. After stepHead or stepRest, call nextStep again
// when a.signal has a value, for example after a hand-over. If insist is true, the head asks the
// store even if this host holds the lock.
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

// stopWaiting excludes the contender a from hand-overs. It returns false if the lock was already
// handed over to that contender.
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

// handOver ends the lease l and hands the lock over to the goroutine of this host that has waited
// longest (K5). If no goroutine waits, or if a rule in [queues] forbids the hand-over, it does
// nothing and returns false. The caller must then release l in the store.
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

// successor makes the lease that follows the lease l, for the contender a and with l's deadline. If
// a renewal of l is under way, its answer counts for the new lease. If no renewal is under way and
// l's last confirmed request is at least minStreakTime old, the new lease is renewed at once.
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
