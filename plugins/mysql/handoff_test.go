package mysql_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/mysql"
)

// TestHandoffs passes a lock back and forth between two hosts. Each release comes at a random
// moment while the other host begins to wait. A lost wake-up would make the Wait longer and raise
// the number of statements, so the test limits both.
func TestHandoffs(t *testing.T) {
	w := newFixture(t)
	hosts := [2]*mysql.Backend{w.b, w.host(t)}
	const warmUp, handoffs = 10, 300
	mine := acquire(t, hosts[0], want("jobs", time.Minute))
	var before int
	for i := range warmUp + handoffs {
		if i == warmUp {
			before = w.statements(t)
		}
		holder, waiter := hosts[i%2], hosts[(i+1)%2]
		next := want("jobs", time.Minute)
		held(t, second(waiter.TryAcquire(t.Context(), next)))
		type grant struct {
			request driver.Request
			slept   time.Duration
			err     error
		}
		granted := make(chan grant, 1)
		go func() {
			g := grant{request: next}
			began := time.Now()
			own, err := waiter.Wait(t.Context(), next, time.Minute)
			g.slept, g.err, g.request.Token = time.Since(began), err, own.Token
			if err == nil && own.Token == 0 {
				g.request.Token, g.err = waiter.TryAcquire(t.Context(), next)
			}
			granted <- g
		}()
		pause(t, rand.N(2*time.Millisecond))
		release(t, holder, mine)
		g := <-granted
		if g.err != nil || g.slept > 4*time.Second || g.request.Token <= mine.Token {
			t.Fatalf("handoff %d after %v: token %d after %d, %v", i, g.slept, g.request.Token, mine.Token, g.err)
		}
		mine = g.request
	}
	// If the release comes just before the sleep, the waiter needs three more statements to acquire.
	most := 10 // a refused acquire (two), enter, sleep, release, wake, read
	if w.mariadb(t) {
		most = 4 // one for an acquire, one for enter, sleep and read, one for release and wake
	}
	if n := w.statements(t) - before; n > most*handoffs+most*handoffs/10 {
		t.Errorf("%d statements for %d handoffs, want %d for each", n, handoffs, most)
	}
}

// TestNoHostBarges lets two hosts take a lock, release it at once, and ask
// again at once. A waiter must get a queue entry even if the lock is free at
// that moment, so that no other owner takes the lock before the waiter asks.
func TestNoHostBarges(t *testing.T) {
	w := newFixture(t)
	const each = 200
	var (
		waited, refused atomic.Int64
		group           sync.WaitGroup
	)
	for _, b := range []*mysql.Backend{w.b, w.host(t)} {
		group.Go(func() {
			for range each {
				r := want("jobs", time.Minute)
				token, err := b.TryAcquire(t.Context(), r)
				for waits := 0; errors.Is(err, driver.ErrHeld); waits++ {
					if waits > 0 {
						refused.Add(1)
					}
					waited.Add(1)
					var g driver.Grant
					if g, err = b.Wait(t.Context(), r, time.Minute); err == nil && g.Token == 0 {
						token, err = b.TryAcquire(t.Context(), r)
					} else {
						token = g.Token
					}
				}
				r.Token = token
				if err = errors.Join(err, b.Release(t.Context(), r)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if n := refused.Load(); n > each/20 {
		t.Errorf("%d of %d who waited were refused, want none but by a late notification", n, waited.Load())
	}
}

// TestReleaseOfLockedRow releases a lock that has a waiter, while another client's transaction
// keeps the row locked for longer than a statement waits. After that, the waiter must get the lock.
func TestReleaseOfLockedRow(t *testing.T) {
	w := newFixture(t)
	mine := acquire(t, w.b, want("jobs", time.Minute))
	host, next := w.host(t), want("jobs", time.Minute)
	woken := make(chan error, 1)
	go func() { woken <- backendtest.Err(host.Wait(t.Context(), next, time.Minute)) }()
	eventually(t, "it waits", func() bool { return blocked(t, w.db, asleep) > 0 })
	held(t, second(w.b.TryAcquire(t.Context(), want("jobs", time.Minute)))) // shows w.b that the lock has waiters
	unlock := w.lockRow(t, "jobs")
	released := make(chan error, 1)
	go func() { released <- w.b.Release(t.Context(), mine) }()
	eventually(t, "the release meets the locked row", func() bool { return blocked(t, w.db, mine.Owner) > 0 })
	pause(t, 1200*time.Millisecond) // the server's lock wait ends after one second
	unlock()
	must(t, <-released)
	must(t, <-woken)
	next = acquire(t, host, next)
	if next.Token <= mine.Token {
		t.Errorf("token %d after %d", next.Token, mine.Token)
	}
	release(t, host, next)
}

// TestSleepersDoNotHoldUpChanges changes the table's definition while waiters sleep. The
// change must not wait for them, because all other statements would wait for the change.
func TestSleepersDoNotHoldUpChanges(t *testing.T) {
	w := newFixture(t)
	if !w.mariadb(t) {
		t.Skip("MySQL knows no block, and its sleepers have the definition locked")
	}
	mine := acquire(t, w.b, want("jobs", time.Minute))
	host := w.host(t)
	var waiting sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 3 {
		waiting.Go(func() { _, _ = host.Wait(ctx, want("jobs", time.Minute), time.Minute) })
	}
	defer waiting.Wait()
	defer cancel()
	eventually(t, "they sleep", func() bool { return blocked(t, w.db, asleep) == 3 })
	if _, err := w.db.ExecContext(t.Context(), "SET STATEMENT lock_wait_timeout=1 FOR ALTER TABLE "+table(w.prefix)+" FORCE"); err != nil {
		t.Error(err)
	}
	release(t, w.b, mine)
}

func (w *fixture) statements(t *testing.T) (n int) {
	t.Helper()
	var name string
	must(t, w.db.QueryRow("SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n))
	return n
}

func (w *fixture) mariadb(t *testing.T) (yes bool) {
	t.Helper()
	must(t, w.db.QueryRow("SELECT VERSION() LIKE '%maria%'").Scan(&yes))
	return yes
}
