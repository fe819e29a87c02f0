package baseline

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
)

func TestEtcdBaselines(t *testing.T) {
	s, err := etcdserver.Start(t.Context(), nil)
	servers.Keep(t, "etcd", s, err)
	cfg := driver.Config{"address": s.Addr()}
	testExclusion(t, "etcd", cfg, cfg)

	// A renewal takes one round trip: it asks for the key before the answer about the lease has come.
	l := opened(t, etcdMutexBaseline, cfg).(*sessions)
	lease, err := l.acquire(t.Context(), "revoked", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.end(t.Context(), l.all[0]); err != nil {
		t.Fatal(err)
	}
	if err := lease.Renew(t.Context()); !errors.Is(err, rpctypes.ErrLeaseNotFound) || !errors.Is(err, concurrency.ErrSessionExpired) {
		t.Errorf("%v: want that neither the lease nor the key exists", err)
	}
}

// TestCancelledCallsLeaveNoKey checks that an interrupted call leaves no key in the store. The
// library alone would leave a key, so that no other client would get the lock.
func TestCancelledCallsLeaveNoKey(t *testing.T) {
	s, err := etcdserver.Start(t.Context(), nil)
	servers.Keep(t, "etcd", s, err)
	l := opened(t, etcdMutexBaseline, driver.Config{"address": s.Addr()}).(*sessions)
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			lock, err := l.Lock("0", 10*time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 20 {
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
