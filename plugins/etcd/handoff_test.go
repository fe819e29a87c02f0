package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/servers"
)

// locker takes a lock and returns what gives it back.
type locker func(ctx context.Context) (release func(context.Context) error, err error)

// handoffs lets lockers contend for rounds grants, each held for 5 ms, and
// returns the times from a release to the next grant, and how often each got it.
func handoffs(t *testing.T, lockers []locker, rounds int) (took []time.Duration, shares []int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var (
		group    sync.WaitGroup
		mu       sync.Mutex
		released time.Time
		last     = -1
	)
	shares = make([]int, len(lockers))
	for i, l := range lockers {
		group.Go(func() {
			for ctx.Err() == nil {
				release, err := l(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				if last >= 0 && last != i {
					took = append(took, time.Since(released))
				}
				last = i
				shares[i]++
				if len(took) >= rounds {
					cancel()
				}
				mu.Unlock()
				<-time.After(5 * time.Millisecond)
				mu.Lock()
				released = time.Now()
				mu.Unlock()
				err = release(context.WithoutCancel(ctx))
				for try := 0; errors.Is(err, core.ErrIndeterminate) && try < 3; try++ {
					err = release(context.WithoutCancel(ctx)) // a busy machine takes its time
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	cancel()
	slices.Sort(took)
	return took, shares
}

// jain is the fairness index: 1 when all shares are equal.
func jain(shares []int) float64 {
	sum, squares := 0.0, 0.0
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	return sum * sum / (float64(len(shares)) * squares)
}

func hosts(t *testing.T, s *servers.Server, n int) []*core.Client {
	clients := make([]*core.Client, n)
	for i := range clients {
		b, err := Open(&Options{Address: []string{s.Addr()}})
		must(t, err)
		clients[i] = core.New(b, &core.Options{Label: fmt.Sprintf("host-%d", i), Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			must(t, clients[i].Close(ctx))
		})
	}
	return clients
}

func lockerOf(t *testing.T, c *core.Client, name string) locker {
	l, err := c.Lock(name, nil)
	must(t, err)
	return func(ctx context.Context) (func(context.Context) error, error) {
		lease, err := l.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return lease.Release, nil
	}
}

func lockerOfMutex(t *testing.T, c *clientv3.Client, name string) locker {
	s, err := concurrency.NewSession(c)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return func(ctx context.Context) (func(context.Context) error, error) {
		m := concurrency.NewMutex(s, name)
		if err := m.Lock(ctx); err != nil {
			return nil, err
		}
		return m.Unlock, nil
	}
}

// TestHandoff measures from release to the next grant beside the client's own
// mutex, whose watch waits for the server's next round of 100 ms when there are
// few waiters. The bounds are far from what a busy machine makes of either.
func TestHandoff(t *testing.T) {
	s := start(t, nil)
	for _, n := range []int{2, 8, 32} {
		handoffOf(t, s, n)
	}
}

// handoffOf measures with n waiters.
func handoffOf(t *testing.T, s *servers.Server, n int) {
	t.Helper()
	var theirs, ours, local []locker
	one := hosts(t, s, 1)[0]
	for _, c := range hosts(t, s, n) {
		theirs = append(theirs, lockerOfMutex(t, plain(t, s), fmt.Sprintf("/mutex-%d", n)))
		ours = append(ours, lockerOf(t, c, fmt.Sprintf("handoff-%d", n)))
		local = append(local, lockerOf(t, one, fmt.Sprintf("local-%d", n)))
	}
	const rounds = 150
	m, mShares := handoffs(t, theirs, rounds/3)
	o, oShares := handoffs(t, ours, rounds)
	l, lShares := handoffs(t, local, rounds)
	t.Logf("%2d waiters: concurrency.Mutex p50 %v p99 %v Jain %.2f", n, at50(m), at99(m), jain(mShares))
	t.Logf("%2d waiters: as many hosts     p50 %v p99 %v Jain %.2f", n, at50(o), at99(o), jain(oShares))
	t.Logf("%2d waiters: in one host       p50 %v p99 %v Jain %.2f", n, at50(l), at99(l), jain(lShares))
	switch j := jain(oShares); {
	case at50(o) > max(200*time.Millisecond, 3*at50(m)): // who is not woken asks after a second
		t.Errorf("%d hosts: half of the handoffs take more than %v: wake-ups are lost", n, at50(o))
	case n == 2 && at50(o) >= at50(m):
		t.Errorf("2 hosts: %v, no better than the mutex with %v", at50(o), at50(m))
	case j < 0.9:
		t.Errorf("%d hosts: fairness %.2f: %v", n, j, oShares)
	}
}

func at50(d []time.Duration) time.Duration { return d[len(d)/2] }
func at99(d []time.Duration) time.Duration { return d[len(d)*99/100] }
