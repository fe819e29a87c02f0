package etcd

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

// TestTwoClusters checks a list of addresses of two clusters, and one address that leads to the
// clusters in turn. No lock may be granted, and Check must report the two clusters.
func TestTwoClusters(t *testing.T) {
	one, two := start(t, nil), start(t, nil)
	for what, o := range map[string]Options{
		"list": {Address: []string{one.Addr(), two.Addr()}},
		"name": {Address: []string{balancer(t, one.Addr(), two.Addr())}},
	} {
		t.Run(what, func(t *testing.T) {
			logs := &warnings{}
			o.Logger = slog.New(slog.NewTextHandler(logs, nil))
			b := connect(t, o)
			_, err := b.TryAcquire(t.Context(), lock("jobs", "a"))
			for _, err := range []error{err, b.Check(t.Context())} {
				if !errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), "leads to two servers, cluster ") {
					t.Errorf("with two clusters: %v", err)
				}
			}
			started := make(chan error, 1)
			b.Start(t.Context(), driver.Op{Kind: driver.OpAcquire, Request: lock("jobs", "a")}, func(r driver.Result) { started <- r.Err })
			if err := <-started; !errors.Is(err, driver.ErrNotSent) {
				t.Errorf("an acquire that is not waited for: %v", err)
			}
			if n := logs.two.Load(); n != 1 {
				t.Errorf("%d warnings, want 1", n)
			}
		})
	}
}

type warnings struct{ two atomic.Int64 }

func (w *warnings) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "leads to two servers") {
		w.two.Add(1)
	}
	return len(line), nil
}

// If a host turns to a member of another cluster, it must refuse that member and lose no lease.
func TestOtherClusterIsNotUsed(t *testing.T) {
	t.Parallel() // most of its time is waiting
	members, _ := three(t)
	other := start(t, nil)
	must(t, other.Stop())
	b := connect(t, Options{Address: append(members.Addrs()[:2:2], other.Addr())})
	sits(t, b, members[0].Addr())
	c := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	l, err := c.Lock("jobs", &core.LockOptions{TTL: 10 * time.Second})
	must(t, err)
	lease, err := l.TryAcquire(t.Context())
	must(t, err)
	must(t, other.Start(t.Context(), true))
	sits(t, b, other.Addr())
	began := time.Now()
	eventually(t, "it is renewed", func() bool {
		if err := lease.Err(); err != nil {
			t.Fatalf("the lease was lost: %v", err)
		}
		return lease.Deadline().After(began.Add(15 * time.Second))
	})
	if err := b.Check(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("with a member of another cluster: %v", err)
	}
	must(t, lease.Release(t.Context()))
	must(t, other.Stop())
	eventually(t, "locks are granted again when the addresses lead to one cluster", func() bool {
		lease, err := l.TryAcquire(t.Context())
		return err == nil && lease.Release(t.Context()) == nil
	})
	must(t, c.Close(t.Context()))
}
