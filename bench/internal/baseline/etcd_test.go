package baseline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
)

func TestEtcdBaselines(t *testing.T) {
	s, err := etcdserver.Start(t.Context(), nil)
	servers.Keep(t, "etcd", s, err)
	cfg := driver.Config{"address": s.Addr()}
	testExclusion(t, "etcd", cfg, cfg)
}

// TestSessionsAreShared: what callers of many names share is as many sessions
// as want one name at a time, each of which excludes the others.
func TestSessionsAreShared(t *testing.T) {
	s, err := etcdserver.Start(t.Context(), nil)
	servers.Keep(t, "etcd", s, err)
	l := opened(t, etcdMutexBaseline, driver.Config{"address": s.Addr()}).(*sessions)
	const callers, ttl = 4, 10 * time.Second
	var work sync.WaitGroup
	var holders [3]atomic.Int32
	for range callers {
		work.Go(func() {
			for i := range 9 {
				n := i % len(holders)
				lease := acquireOf(t, l, strconv.Itoa(n), ttl)
				if lease == nil {
					return
				}
				if holders[n].Add(1) > 1 {
					t.Error("two callers of one name hold it")
				}
				holders[n].Add(-1)
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	if open := l.open[ttl]; len(open) > callers {
		t.Errorf("%d sessions for %d callers", len(open), callers)
	}
	for range 8 {
		work.Go(func() {
			for i := range 20 {
				lock, err := l.Lock("0", ttl)
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*250*time.Microsecond)
				lease, err := lock.Acquire(ctx)
				cancel()
				if err != nil {
					continue
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	if kept, err := l.client.Get(t.Context(), l.prefix, clientv3.WithPrefix()); err != nil || kept.Count > 0 {
		t.Errorf("%v keys of calls that were cancelled, %v", kept, err)
	}
}

// TestWriteAfterItsCall: what reaches the store after its call was cancelled and
// its key deleted keeps nobody out, and ends nothing that is held.
func TestWriteAfterItsCall(t *testing.T) {
	s, err := etcdserver.Start(t.Context(), nil)
	servers.Keep(t, "etcd", s, err)
	for _, bl := range []Baseline{etcdMutexBaseline, etcdElectionBaseline} {
		t.Run(bl.Name, func(t *testing.T) {
			const ttl = 30 * time.Second
			l := opened(t, bl, driver.Config{"address": s.Addr()}).(*sessions)
			held := acquireOf(t, l, "held", ttl)
			cancelled, err := l.Lock("cancelled", ttl)
			if held == nil || err != nil || len(l.open[ttl]) != 1 {
				t.Fatalf("%v, %v, sessions %v", held, err, l.open[ttl])
			}
			shared := l.open[ttl][0]
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := cancelled.Acquire(ctx); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			write := func() error {
				key := fmt.Sprintf("%scancelled/%x", l.prefix, shared.Lease())
				_, err := l.client.Put(t.Context(), key, "", clientv3.WithLease(shared.Lease()))
				return err
			}
			if err := write(); err != nil {
				t.Fatalf("what is held with it is lost: %v", err)
			}
			if err := held.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := write(); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				t.Errorf("the session lives: %v", err)
			}
			if lease := acquireOf(t, l, "cancelled", ttl); lease != nil {
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func acquireOf(t *testing.T, l load.Locker, name string, ttl time.Duration) load.Lease {
	lock, err := l.Lock(name, ttl)
	if err != nil {
		t.Error(err)
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease, err := lock.Acquire(ctx)
	if err != nil {
		t.Error(err)
		return nil
	}
	return lease
}
