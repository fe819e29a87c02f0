package memory

import (
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/feed"
	"github.com/lockbench/lockbench/plugins/internal/millis"
	"github.com/lockbench/lockbench/plugins/internal/wake"
)

// Store holds locks. All its methods and those of the backends that it opens
// may be called from any number of goroutines. It has no goroutine of its own:
// what has expired is noticed by whoever looks next.
type Store struct {
	mu         sync.Mutex
	names      map[string]*entry
	sweepAt    int // number of names at which the idle ones are dropped
	token      uint64
	withdrawn  map[claim]time.Time // withdrawn owners, until when
	tombstones []claim             // keys of withdrawn, oldest first
	feeds      feed.Feeds          // one for each Watch
}

// entry is what the store knows of one name.
type entry struct {
	grant     *grant // nil when free; may have expired
	queue     []*place
	observers map[chan struct{}]bool // told that grant has changed
}

type grant struct {
	owner, label string
	value        []byte
	token        uint64
	expires      time.Time
}

// claim is one owner's on one name.
type claim struct{ name, owner string }

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{
		names:     map[string]*entry{},
		withdrawn: map[claim]time.Time{},
	}
}

// Open connects another host to the store. Closing it leaves the store and its
// leases as they are.
func (s *Store) Open() driver.Backend {
	return &backend{store: s, done: make(chan struct{})}
}

// at returns name's entry with what has expired taken out of it.
func (s *Store) at(name string, now time.Time) *entry {
	e := s.names[name]
	if e == nil {
		s.sweep(now)
		e = &entry{observers: map[chan struct{}]bool{}}
		s.names[name] = e
	}
	e.expire(now)
	return e
}

// sweep drops names that nobody uses any more, once their number may have
// doubled, so that a name costs constant time and nothing for ever.
func (s *Store) sweep(now time.Time) {
	if len(s.names) < s.sweepAt {
		return
	}
	for name, e := range s.names {
		if e.expire(now); e.idle() {
			delete(s.names, name)
		}
	}
	s.sweepAt = 2*len(s.names) + 64
}

// tidy drops name at once if nothing is left of it.
func (s *Store) tidy(name string, e *entry) {
	if e.idle() {
		delete(s.names, name)
	}
}

func (e *entry) idle() bool {
	return e.grant == nil && len(e.queue) == 0 && len(e.observers) == 0
}

// expire ends the grant and the places in the queue whose time is over, and
// sees to it that a free lock has woken its next waiter.
func (e *entry) expire(now time.Time) {
	if e.grant != nil && !now.Before(e.grant.expires) {
		e.set(nil)
	}
	e.queue = slices.DeleteFunc(e.queue, func(p *place) bool { return p.parked == 0 && now.Sub(p.touched) >= placeFor })
	if e.grant == nil {
		e.wakeHead(now)
	}
}

// set replaces the grant and tells the observers.
func (e *entry) set(g *grant) {
	e.grant = g
	e.changed()
}

func (e *entry) changed() {
	for c := range e.observers {
		wake.Up(c)
	}
}

// nextToken returns the next token. One counter for all names is enough for each of
// them to rise, and the clock in microseconds lets them rise over a restart.
func (s *Store) nextToken(now time.Time) uint64 {
	s.token = max(s.token+1, uint64(max(0, now.UnixMicro())))
	return s.token
}

// bury refuses owner from now on, and forgets the tombstones whose time is over.
func (s *Store) bury(name, owner string, now time.Time) {
	key := claim{name, owner}
	if _, known := s.withdrawn[key]; !known {
		s.tombstones = append(s.tombstones, key)
		s.withdrawn[key] = now.Add(tombstoneFor)
	}
	over := 0
	for over < len(s.tombstones) && !now.Before(s.withdrawn[s.tombstones[over]]) {
		delete(s.withdrawn, s.tombstones[over])
		over++
	}
	s.tombstones = slices.Delete(s.tombstones, 0, over)
}

func (s *Store) isWithdrawn(name, owner string, now time.Time) bool {
	return now.Before(s.withdrawn[claim{name, owner}])
}

// holder describes the grant of name, which is this entry's.
func (e *entry) holder(name string, now time.Time) driver.Holder {
	if e.grant == nil {
		return driver.Holder{}
	}
	return driver.Holder{
		Name:    name,
		Owner:   e.grant.owner,
		Label:   e.grant.label,
		Value:   slices.Clone(e.grant.value),
		Token:   e.grant.token,
		TTL:     millis.Up(e.grant.expires.Sub(now)),
		Waiters: len(e.queue),
	}
}
