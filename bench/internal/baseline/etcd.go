package baseline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/plugins/etcd"
)

const (
	etcdModule      = "go.etcd.io/etcd/client/v3"
	etcdDialTimeout = 5 * time.Second
)

// dialEtcd makes the client of all baselines from the configuration of the etcd
// backend, whose tls keys it does not read: a https:// address is enough for a
// server that the system trusts.
func dialEtcd(cfg driver.Config) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: cfg.List("address"), Username: cfg["username"], Password: cfg["password"],
		DialTimeout: etcdDialTimeout, Logger: zap.NewNop(),
	})
}

// etcdPrefix keeps a baseline's keys apart from those of the backend, below the
// prefix that the user has the right to.
func etcdPrefix(cfg driver.Config) string {
	own := cfg["prefix"]
	if own == "" {
		own = etcd.DefaultPrefix
	}
	return own + strings.ReplaceAll(keyPrefix, ":", "/")
}

var etcdMutexBaseline = Baseline{
	Name:      "etcdmutex",
	Doc:       "concurrency.Mutex of the etcd client, one session for all locks",
	Backend:   "etcd",
	Module:    etcdModule,
	Fencing:   driver.FencingStrict,
	Reference: true,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		return openSessions(cfg, "mutex/", lockMutex)
	},
}

var etcdElectionBaseline = Baseline{
	Name:    "etcdelection",
	Doc:     "concurrency.Election of the etcd client: campaign and resign",
	Backend: "etcd",
	Module:  etcdModule,
	Fencing: driver.FencingStrict,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		return openSessions(cfg, "election/", winElection)
	},
}

// mutexUnlocked is the key of a mutex that has deleted its own.
const mutexUnlocked = "\x00"

// sessions is what both share. Callers of different names share one session,
// as applications do. A session does not exclude inside itself, so that of the
// callers that want one name at the same time each has a session of its own.
type sessions struct {
	client  *clientv3.Client
	prefix  string
	acquire acquireOn

	mu   sync.Mutex
	open map[time.Duration][]*session
}

// acquireOn waits for the lock whose keys begin with key. answered reports, of a
// call that has failed, whether the store answered the write of its key.
type acquireOn func(ctx context.Context, s *concurrency.Session, key string) (l lease, answered bool, err error)

// session is one of etcd's with the names that are waited for or held in it. One
// to which a write of a call that has failed may still come gets no more names,
// and ends with its last.
type session struct {
	*concurrency.Session
	names map[string]bool
	ends  bool
}

func openSessions(cfg driver.Config, dir string, acquire acquireOn) (load.Locker, error) {
	c, err := dialEtcd(cfg)
	if err != nil {
		return nil, err
	}
	return &sessions{
		client: c, prefix: etcdPrefix(cfg) + dir, acquire: acquire,
		open: map[time.Duration][]*session{},
	}, nil
}

// Lock makes the first session here, not with the first Acquire: an application
// has it from its start.
func (l *sessions) Lock(name string, ttl time.Duration) (load.Lock, error) {
	if ttl%time.Second != 0 || ttl <= 0 {
		return nil, errors.New("concurrency.Session: a TTL is a number of whole seconds")
	}
	ctx, cancel := context.WithTimeout(l.client.Ctx(), etcdDialTimeout)
	defer cancel()
	s, err := l.borrow(ctx, name, ttl)
	if err != nil {
		return nil, err
	}
	if err := l.giveBack(ctx, s, name); err != nil {
		return nil, err
	}
	return sessionLock{sessions: l, name: name, ttl: ttl}, nil
}

// borrow returns a session in which nobody has name, a new one when there is
// none. One that has expired is of no use any more.
func (l *sessions) borrow(ctx context.Context, name string, ttl time.Duration) (*session, error) {
	if s := l.free(name, ttl); s != nil {
		return s, nil
	}
	// Not by NewSession, whose ctx is for the whole life of the session.
	granted, err := l.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(l.client, concurrency.WithLease(granted.ID))
	if err != nil {
		return nil, err
	}
	fresh := &session{Session: s, names: map[string]bool{name: true}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[ttl] = append(l.open[ttl], fresh)
	return fresh, nil
}

func (l *sessions) free(name string, ttl time.Duration) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[ttl] = slices.DeleteFunc(l.open[ttl], (*session).expired)
	for _, s := range l.open[ttl] {
		if !s.ends && !s.names[name] {
			s.names[name] = true
			return s
		}
	}
	return nil
}

func (l *sessions) giveBack(ctx context.Context, s *session, name string) error {
	l.mu.Lock()
	delete(s.names, name)
	over := s.ends && len(s.names) == 0
	l.mu.Unlock()
	if !over {
		return nil
	}
	return l.end(ctx, s)
}

// end releases what is held in s, and has writes to it refused.
func (l *sessions) end(ctx context.Context, s *session) error {
	s.Orphan()
	_, err := l.client.Revoke(ctx, s.Lease())
	return err
}

func (s *session) expired() bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// Close ends the sessions, which releases what is held.
func (l *sessions) Close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*session
	for _, some := range l.open {
		all = append(all, some...)
	}
	all = slices.DeleteFunc(all, (*session).expired)
	ended := inject.AtOnce(len(all), func(i int) error { return l.end(ctx, all[i]) })
	return errors.Join(ended, l.client.Close())
}

type sessionLock struct {
	sessions *sessions
	name     string
	ttl      time.Duration
}

func (l sessionLock) Acquire(ctx context.Context) (load.Lease, error) {
	s, err := l.sessions.borrow(ctx, l.name, l.ttl)
	if err != nil {
		return nil, err
	}
	key := l.sessions.prefix + l.name
	held, answered, err := l.sessions.acquire(ctx, s.Session, key)
	if err != nil {
		return nil, errors.Join(err, l.sessions.withdraw(s, l.name, answered))
	}
	release := held.release
	held.release = func(ctx context.Context) error {
		err := release(ctx)
		return errors.Join(err, l.sessions.giveBack(ctx, s, l.name))
	}
	return untimed{held}, nil // the session renews it too
}

// withdraw deletes the key of a call for name that has failed. The library does
// not when ctx ends while the key is written: nobody else would get the lock for
// as long as the session lives. What was not answered may be written after that.
func (l *sessions) withdraw(s *session, name string, answered bool) error {
	ctx, cancel := context.WithTimeout(l.client.Ctx(), etcdDialTimeout)
	defer cancel()
	was, err := l.client.Delete(ctx, fmt.Sprintf("%s%s/%x", l.prefix, name, s.Lease()))
	if err != nil || !answered && was.Deleted == 0 {
		l.mu.Lock()
		s.ends = true
		l.mu.Unlock()
	}
	return errors.Join(err, l.giveBack(ctx, s, name))
}

func lockMutex(ctx context.Context, s *concurrency.Session, key string) (lease, bool, error) {
	m := concurrency.NewMutex(s, key)
	if err := m.Lock(ctx); err != nil {
		return lease{}, m.Key() == mutexUnlocked, err
	}
	// A user of the mutex takes the store's revision at the grant for its token.
	return lease{token: uint64(m.Header().Revision), renew: renewing(s, m.Key()), release: m.Unlock}, true, nil
}

func winElection(ctx context.Context, s *concurrency.Session, key string) (lease, bool, error) {
	e := concurrency.NewElection(s, key)
	if err := e.Campaign(ctx, ""); err != nil {
		return lease{}, e.Rev() > 0, err
	}
	return lease{token: uint64(e.Rev()), renew: renewing(s, e.Key()), release: e.Resign}, true, nil
}

// renewing does what the session does by itself, and looks for the key: the
// session's lease lives on when a lock of it was released or broken.
func renewing(s *concurrency.Session, key string) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := s.Client().KeepAliveOnce(ctx, s.Lease()); err != nil {
			return err
		}
		resp, err := s.Client().Get(ctx, key, clientv3.WithCountOnly())
		if err == nil && resp.Count == 0 {
			err = concurrency.ErrSessionExpired
		}
		return err
	}
}
