package baseline

import (
	"context"
	"errors"
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

// dialEtcd makes a baseline's client from the configuration of the etcd backend. It ignores the
// keys about TLS. If the system trusts the server, an https:// address is enough.
func dialEtcd(cfg driver.Config) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: cfg.List("address"), Username: cfg["username"], Password: cfg["password"],
		DialTimeout: etcdDialTimeout, Logger: zap.NewNop(),
	})
}

// etcdPrefix returns a prefix that keeps a baseline's keys apart from the backend's keys. It begins
// with the backend's prefix, because the user may have no access to other keys.
func etcdPrefix(cfg driver.Config) string {
	own := cfg["prefix"]
	if own == "" {
		own = etcd.DefaultPrefix
	}
	return own + strings.ReplaceAll(keyPrefix, ":", "/")
}

var etcdMutexBaseline = Baseline{
	Name:      "etcdmutex",
	Doc:       "concurrency.Mutex of the etcd client, in a session of its caller's",
	Backend:   "etcd",
	Module:    etcdModule,
	Renews:    true,
	Reference: true,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		c, err := dialEtcd(cfg)
		if err != nil {
			return nil, err
		}
		return &sessions{client: c, prefix: etcdPrefix(cfg) + "mutex/", idle: map[time.Duration][]*concurrency.Session{}}, nil
	},
}

// mutexUnlocked is what Mutex.Key returns after the mutex has deleted its key.
const mutexUnlocked = "\x00"

// sessions has the etcd sessions of the callers, and reuses them. A session is used for one lock at
// a time, because two callers with the same session do not exclude each other.
type sessions struct {
	client *clientv3.Client
	prefix string

	mu   sync.Mutex
	all  []*concurrency.Session
	idle map[time.Duration][]*concurrency.Session
}

func (l *sessions) Lock(name string, ttl time.Duration) (load.Lock, error) {
	if ttl%time.Second != 0 || ttl <= 0 {
		return nil, errors.New("concurrency.Session: a TTL is a number of whole seconds")
	}
	return acquire(func(ctx context.Context) (load.Lease, error) { return l.acquire(ctx, name, ttl) }), nil
}

func (l *sessions) acquire(ctx context.Context, name string, ttl time.Duration) (load.Lease, error) {
	s, err := l.take(ctx, ttl)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, l.prefix+name)
	if err := m.Lock(ctx); err != nil {
		return nil, errors.Join(err, l.giveBack(s, ttl, m.Key() == mutexUnlocked))
	}
	return untimed{lease{ // the session also renews the lease by itself
		// The library defines no token. Its users take the store's revision at the grant as a token.
		token: uint64(m.Header().Revision),
		renew: renewing(s, m.Key()),
		release: func(ctx context.Context) error {
			err := m.Unlock(ctx)
			return errors.Join(err, l.giveBack(s, ttl, err == nil))
		},
	}}, nil
}

// giveBack keeps a session for the next lock if clean is set. Otherwise it ends the session. This
// deletes a key that an interrupted call may have left in the store.
func (l *sessions) giveBack(s *concurrency.Session, ttl time.Duration, clean bool) error {
	if !clean {
		return l.end(l.client.Ctx(), s)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle[ttl] = append(l.idle[ttl], s)
	return nil
}

// take returns an idle session, or a new one.
func (l *sessions) take(ctx context.Context, ttl time.Duration) (*concurrency.Session, error) {
	l.mu.Lock()
	for idle := l.idle[ttl]; len(idle) > 0; idle = l.idle[ttl] {
		s := idle[len(idle)-1]
		l.idle[ttl] = idle[:len(idle)-1]
		if !expired(s) {
			l.mu.Unlock()
			return s, nil
		}
	}
	l.mu.Unlock()
	// Do not let NewSession request the etcd lease, because that request would need the ctx of this
	// call. The session would then end together with this ctx.
	granted, err := l.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(l.client, concurrency.WithLease(granted.ID))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
	return s, nil
}

// end revokes the lease of the session s. This releases all locks that are held in the session. The
// store then also refuses late writes with this lease.
func (l *sessions) end(ctx context.Context, s *concurrency.Session) error {
	ctx, cancel := context.WithTimeout(ctx, etcdDialTimeout)
	defer cancel()
	s.Orphan()
	_, err := l.client.Revoke(ctx, s.Lease())
	return err
}

func expired(s *concurrency.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// Close ends the sessions, which releases all held locks.
func (l *sessions) Close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, expired)
	ended := inject.AtOnce(len(l.all), func(i int) error { return l.end(ctx, l.all[i]) })
	return errors.Join(ended, l.client.Close())
}

// renewing returns a function that renews the session's lease and checks that the key exists, both
// in one round trip. The lease may still exist after the lock was released or broken.
func renewing(s *concurrency.Session, key string) func(context.Context) error {
	return func(ctx context.Context) error {
		return inject.AtOnce(2, func(i int) error {
			if i == 0 {
				_, err := s.Client().KeepAliveOnce(ctx, s.Lease())
				return err
			}
			resp, err := s.Client().Get(ctx, key, clientv3.WithCountOnly())
			if err == nil && resp.Count == 0 {
				err = concurrency.ErrSessionExpired
			}
			return err
		})
	}
}
