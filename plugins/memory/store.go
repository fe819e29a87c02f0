package memory

import (
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Store holds locks. All its methods, and the methods of the backends that it opens, may be called
// from any number of goroutines. A Store runs no goroutine. The next call that reads a lock drops
// the lock's lease if it has expired.
type Store struct {
	mu        sync.Mutex
	names     map[string]*entry
	sweepAt   int // number of names at which unused names are dropped
	token     uint64
	withdrawn kit.Recent[claim, struct{}]
	changed   kit.Broadcast // signals changed grants and closed backends
	feeds     kit.Feeds     // one for each Watch
}

type entry struct {
	grant *grant // nil when free; it may have expired
	queue []*place
}

// grant is a granted request, with its token.
type grant struct {
	driver.Request
	expires     time.Time
	made        time.Time // when the store made the grant for a waiter; zero for a grant by TryAcquire
	unconfirmed bool      // the waiter has not yet confirmed it by a Renew or TryAcquire
}

func (g *grant) extend(ttl time.Duration, now time.Time) {
	g.expires, g.unconfirmed = now.Add(ttl), false
}

type claim struct{ name, owner string }

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{
		names:     map[string]*entry{},
		withdrawn: kit.Recent[claim, struct{}]{Age: tombstoneFor},
	}
}

// Open connects another host to the store. Closing the returned backend ends no lease in the store.
func (s *Store) Open() driver.Backend {
	return &backend{store: s, background: kit.NewGroup()}
}

// do calls f with the entry of the lock called name. No other call runs while f runs.
func (s *Store) do(name string, f func(s *Store, e *entry, now time.Time) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	e := s.at(name, now)
	defer s.tidy(name, e)
	return f(s, e, now)
}

// The method at returns the named lock's entry, without an expired grant or expired places.
func (s *Store) at(name string, now time.Time) *entry {
	e := s.names[name]
	if e == nil {
		s.sweep(now)
		e = &entry{}
		s.names[name] = e
	}
	s.expire(e, now)
	return e
}

// sweep drops the names that no owner holds or waits for. It runs only when
// the number of names may have doubled, so that its cost per name is constant.
func (s *Store) sweep(now time.Time) {
	if len(s.names) < s.sweepAt {
		return
	}
	for name, e := range s.names {
		s.expire(e, now)
		s.tidy(name, e)
	}
	s.sweepAt = 2*len(s.names) + 64
}

func (s *Store) tidy(name string, e *entry) {
	if e.grant == nil && len(e.queue) == 0 {
		delete(s.names, name)
	}
}

// expire drops the grant and the queue places that have expired. It then grants a free lock to the
// next waiter, so a lock that is still free has no waiters.
func (s *Store) expire(e *entry, now time.Time) {
	if e.grant != nil && !now.Before(e.grant.expires) {
		s.set(e, nil)
	}
	e.queue = slices.DeleteFunc(e.queue, func(p *place) bool { return p.parked == 0 && now.Sub(p.touched) >= placeFor })
	s.grantNext(e, now)
}

func (s *Store) free(e *entry, now time.Time) {
	s.set(e, nil)
	s.grantNext(e, now)
}

func (s *Store) set(e *entry, g *grant) {
	e.grant = g
	s.changed.Up()
}

// nextToken returns the next token. Tokens rise because all names share one counter. They rise
// across a restart too, because a token is never below the clock's time in microseconds.
func (s *Store) nextToken(now time.Time) uint64 {
	s.token = max(s.token+1, uint64(max(0, now.UnixMicro())))
	return s.token
}

func (e *entry) holder(now time.Time) driver.Holder {
	g := e.grant
	if g == nil {
		return driver.Holder{}
	}
	return driver.Holder{
		Name: g.Name, Owner: g.Owner, Label: g.Label, Value: slices.Clone(g.Value), Token: g.Token,
		TTL: kit.UpToMillis(g.expires.Sub(now)), Waiters: len(e.queue),
	}
}
