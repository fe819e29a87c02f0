package baseline

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockbench/lockbench/bench/load"
	"github.com/lockbench/lockbench/core/driver"
)

var etcdMutexBaseline = Baseline{
	Name:    "etcdmutex",
	Doc:     "concurrency.Mutex of the etcd client, one session for all locks",
	Backend: "etcd",
	Module:  etcdModule,
	Fencing: driver.FencingStrict,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		return openSessions(cfg, "mutex/", func(s *concurrency.Session, key string) load.Lock {
			return mutexLock{session: s, key: key}
		})
	},
}

var etcdElectionBaseline = Baseline{
	Name:    "etcdelection",
	Doc:     "concurrency.Election of the etcd client: campaign and resign",
	Backend: "etcd",
	Module:  etcdModule,
	Fencing: driver.FencingStrict,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		return openSessions(cfg, "election/", func(s *concurrency.Session, key string) load.Lock {
			return electionLock{session: s, key: key}
		})
	},
}

// sessions is what both share. Callers of different names share one session,
// as applications do. A session does not exclude inside itself, so that another
// caller of the same name gets a session of its own.
type sessions struct {
	client *clientv3.Client
	prefix string
	make   func(s *concurrency.Session, key string) load.Lock

	mu     sync.Mutex
	shared map[time.Duration]*concurrency.Session
	used   map[string]bool
	all    []*concurrency.Session
}

func openSessions(cfg driver.Config, dir string, lock func(*concurrency.Session, string) load.Lock) (load.Locker, error) {
	c, err := dialEtcd(cfg)
	if err != nil {
		return nil, err
	}
	return &sessions{
		client: c, prefix: etcdPrefix(cfg) + dir, make: lock,
		shared: map[time.Duration]*concurrency.Session{}, used: map[string]bool{},
	}, nil
}

// Lock makes the session here, not with the first Acquire: an application has it
// from its start.
func (l *sessions) Lock(name string, ttl time.Duration) (load.Lock, error) {
	if ttl%time.Second != 0 || ttl <= 0 {
		return nil, errors.New("concurrency.Session: a TTL is a number of whole seconds")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shared[ttl]
	if s == nil || expired(s) || l.used[name] {
		var err error
		if s, err = concurrency.NewSession(l.client, concurrency.WithTTL(int(ttl/time.Second))); err != nil {
			return nil, err
		}
		l.all = append(l.all, s)
	}
	if !l.used[name] {
		l.shared[ttl], l.used[name] = s, true
	}
	return l.make(s, l.prefix+name), nil
}

// expired tells that a session is of no use any more.
func expired(s *concurrency.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// Close ends the sessions, which releases what is held.
func (l *sessions) Close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	for _, s := range l.all {
		err = errors.Join(err, s.Close())
	}
	return errors.Join(err, l.client.Close())
}

type mutexLock struct {
	session *concurrency.Session
	key     string
}

func (l mutexLock) Acquire(ctx context.Context) (load.Lease, error) {
	m := concurrency.NewMutex(l.session, l.key)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return &sessionLease{session: l.session, key: m.Key(), token: m.Header().Revision, release: m.Unlock}, nil
}

type electionLock struct {
	session *concurrency.Session
	key     string
}

func (l electionLock) Acquire(ctx context.Context) (load.Lease, error) {
	e := concurrency.NewElection(l.session, l.key)
	if err := e.Campaign(ctx, ""); err != nil {
		return nil, err
	}
	return &sessionLease{session: l.session, key: e.Key(), token: e.Rev(), release: e.Resign}, nil
}

// sessionLease is a key on the lease of a session.
type sessionLease struct {
	session *concurrency.Session
	key     string
	token   int64
	release func(context.Context) error
}

// Token is the store's revision at the grant, which a user of the mutex takes
// for it; that of an election is its create revision.
func (l *sessionLease) Token() uint64 { return uint64(l.token) }

// Renew does what the session does by itself, and looks for the key: the
// session's lease lives on when a lock of it was released or broken.
func (l *sessionLease) Renew(ctx context.Context) error {
	c := l.session.Client()
	if _, err := c.KeepAliveOnce(ctx, l.session.Lease()); err != nil {
		return err
	}
	resp, err := c.Get(ctx, l.key, clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	if resp.Count == 0 {
		return concurrency.ErrSessionExpired
	}
	return nil
}

// Untimed implements load.Untimed: the session renews it too.
func (l *sessionLease) Untimed() {}

func (l *sessionLease) Release(ctx context.Context) error { return l.release(ctx) }
