package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/mysql"
)

// TestAbandonedStatement lets an acquire wait for a row lock until its caller gives up. The owner
// is withdrawn while the acquire still waits in the server. The acquire must not get the lock when
// the row is unlocked later, even if its host is closed by then.
func TestAbandonedStatement(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("host gone %t", gone), func(t *testing.T) {
			w := newFixture(t)
			host := w.host(t)
			release(t, w.b, acquire(t, w.b, want("jobs", 10*time.Second)))
			unlock := w.lockRow(t, "jobs")
			r := want("jobs", 10*time.Second)
			ctx, cancel := context.WithCancel(t.Context())
			asked := make(chan error, 1)
			go func() {
				_, err := host.TryAcquire(ctx, r)
				asked <- err
			}()
			eventually(t, "the acquire is in the server", func() bool { return blocked(t, w.db, r.Owner) > 0 })
			cancel()
			if err := <-asked; !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) {
				t.Fatalf("abandoned: %v", err)
			}
			if gone {
				must(t, host.Close(t.Context()))
			}
			withdrawn := make(chan error, 1)
			go func() { withdrawn <- w.b.Withdraw(t.Context(), r.Name, r.Owner) }()
			eventually(t, "the withdrawal is in the server", func() bool {
				select {
				case err := <-withdrawn:
					t.Fatalf("withdrawn although the row is locked: %v", err)
				default:
				}
				return blocked(t, w.db, "(name,expires_at,label,barred,") > 0
			})
			unlock()
			must(t, <-withdrawn)
			throughout(t, 1500*time.Millisecond, "nobody holds the lock", func() bool {
				h, err := w.b.Inspect(t.Context(), "jobs")
				return err == nil && !h.Held()
			})
			if _, err := w.b.TryAcquire(t.Context(), r); !errors.Is(err, driver.ErrWithdrawn) {
				t.Errorf("the withdrawn owner: %v", err)
			}
			acquire(t, w.b, want("jobs", time.Second))
		})
	}
}

// TestKilledConnections kills connections of a waiter and of a holder. Both must recover from this.
func TestKilledConnections(t *testing.T) {
	w := newFixture(t)
	r := acquire(t, w.b, want("jobs", 10*time.Second))
	c := core.New(w.host(t), &core.Options{Logger: slog.New(slog.DiscardHandler)})
	defer c.Close(context.Background())
	l, err := c.Lock("jobs", nil)
	must(t, err)
	got := make(chan error, 1)
	go func() {
		_, err := l.Acquire(t.Context())
		got <- err
	}()
	for range 3 {
		eventually(t, "the waiter sleeps", func() bool { return w.kill(t, asleep) > 0 })
	}
	if n := w.killIdle(t); n == 0 {
		t.Error("the holder has no connection")
	}
	if err := w.b.Renew(t.Context(), r); err != nil {
		t.Errorf("renewing after the connections were killed: %v", err)
	}
	release(t, w.b, r)
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(timeout):
		t.Error("the waiter does not get the lock")
	}
}

func (w *fixture) killIdle(t *testing.T) (killed int) {
	t.Helper()
	rows, err := w.db.Query("SELECT ID FROM information_schema.PROCESSLIST WHERE ID<>CONNECTION_ID() AND COMMAND='Sleep' AND DB=DATABASE()")
	must(t, err)
	defer rows.Close()
	db := connect(t, w.address)
	defer db.Close()
	for rows.Next() {
		var id int64
		must(t, rows.Scan(&id))
		if _, err := db.Exec("KILL CONNECTION ?", id); err == nil {
			killed++
		}
	}
	must(t, rows.Err())
	return killed
}

// TestLostFirstWaiter grants the lock to a first waiter that never uses the grant, as if its
// machine were lost. The next waiter must get the lock when that grant ends.
func TestLostFirstWaiter(t *testing.T) {
	w := newFixture(t)
	const ttl = 2 * time.Second
	r := acquire(t, w.b, want("jobs", time.Minute))
	lost, next := w.host(t), w.host(t)
	queue := func(b *mysql.Backend, r driver.Request, position int) <-chan error {
		done := make(chan error, 1)
		go func() { done <- backendtest.Err(b.Wait(t.Context(), r, 10*time.Second)) }()
		eventually(t, "it is in the queue", func() bool {
			h, err := w.b.Inspect(t.Context(), "jobs")
			return err == nil && h.Waiters == position
		})
		return done
	}
	first := queue(lost, want("jobs", ttl), 1)
	second := want("jobs", ttl)
	woken := queue(next, second, 2)
	r.TTL = ttl
	must(t, w.b.Renew(t.Context(), r))
	release(t, w.b, r)
	released := time.Now()
	must(t, <-first)
	if _, err := next.TryAcquire(t.Context(), second); held(t, err).TTL > firstSpan {
		t.Errorf("out of turn: %v", err)
	}
	must(t, <-woken)
	for { // if the wake-up came before the sleep, the waiter asks and waits again
		_, err := next.TryAcquire(t.Context(), second)
		if err == nil {
			break
		}
		held(t, err)
		must(t, backendtest.Err(next.Wait(t.Context(), second, 10*time.Second)))
	}
	if took := time.Since(released); took > firstSpan+3*time.Second {
		t.Errorf("the next grant came %v after the release", took)
	}
}

// TestFreedWhileAcquireWaits sends an acquire while a transaction keeps the lock's row locked. The
// transaction then frees the lock and commits. The acquire runs after that, and must leave the lock
// to the first waiter.
func TestFreedWhileAcquireWaits(t *testing.T) {
	w := newFixture(t)
	acquire(t, w.b, want("jobs", 10*time.Second))
	host, stranger := w.host(t), want("jobs", time.Second)
	held(t, second(host.TryAcquire(t.Context(), stranger)))
	first := place(t, w.b, want("jobs", time.Minute))
	tx, err := w.db.BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	_, err = tx.Exec("UPDATE " + table(w.prefix) + " SET label='' WHERE name='jobs'")
	must(t, err)
	refused := make(chan error, 1)
	go func() { refused <- second(host.TryAcquire(t.Context(), stranger)) }()
	eventually(t, "the acquire is in the server", func() bool { return blocked(t, w.db, stranger.Owner) > 0 })
	_, err = tx.Exec("UPDATE " + table(w.prefix) + " SET owner='',expires_at=UTC_TIMESTAMP(6) WHERE name='jobs'")
	must(t, err)
	must(t, tx.Commit())
	if h := held(t, <-refused); h.Owner != first.Owner {
		t.Errorf("refused for %+v", h)
	}
}

// TestGoneWaiterIsPassed puts two queue entries of this program's previous version first in the
// queue. Their waiters give no signs of life, so the next waiter must be granted the lock at once.
func TestGoneWaiterIsPassed(t *testing.T) {
	w := newFixture(t)
	r := acquire(t, w.b, want("jobs", 10*time.Second))
	if _, err := w.db.Exec("UPDATE "+table(w.prefix)+" SET queue=? WHERE name='jobs'", ",gone1.99,gone2.98"); err != nil {
		t.Fatal(err)
	}
	next := want("jobs", 10*time.Second)
	woken := make(chan error, 1)
	go func() { woken <- backendtest.Err(w.b.Wait(t.Context(), next, 10*time.Second)) }()
	eventually(t, "it is in the queue", func() bool { return blocked(t, w.db, asleep) > 0 })
	release(t, w.b, r)
	released := time.Now()
	must(t, <-woken)
	acquire(t, w.b, next)
	if took := time.Since(released); took > 5*time.Second {
		t.Errorf("the next grant came %v after the release", took)
	}
}

// TestRestartInMidWait restarts the server while an owner waits. The owner must still get the lock.
func TestRestartInMidWait(t *testing.T) {
	s := own(t, nil)
	b := open(t, mysql.Options{Address: mysqlserver.Address(s)})
	r := acquire(t, b, want("jobs", time.Minute))
	c := core.New(open(t, mysql.Options{Address: mysqlserver.Address(s)}), &core.Options{Logger: slog.New(slog.DiscardHandler)})
	defer c.Close(context.Background())
	l, err := c.Lock("jobs", nil)
	must(t, err)
	got := make(chan error, 1)
	go func() {
		lease, err := l.Acquire(t.Context())
		if err == nil && core.GrantNumber(lease.Token()) <= r.Token {
			err = fmt.Errorf("token %d after %d", lease.Token(), r.Token)
		}
		got <- err
	}()
	eventually(t, "it waits", func() bool {
		h, err := b.Inspect(t.Context(), "jobs")
		return err == nil && h.Waiters == 1
	})
	must(t, s.Stop())
	if _, err := b.TryAcquire(t.Context(), want("jobs", time.Second)); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("while the server is down: %v", err)
	}
	must(t, s.Start(t.Context(), true))
	eventually(t, "the lease can be renewed", func() bool { return b.Renew(t.Context(), r) == nil })
	release(t, b, r)
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(timeout):
		t.Error("the waiter does not get the lock")
	}
}

// TestClockMoved moves the server's clock by an hour in each direction while no lock is held. Locks
// must be granted at once, and tokens must rise.
func TestClockMoved(t *testing.T) {
	preload := faketime(t)
	at := filepath.Join(t.TempDir(), "offset")
	move := func(offset string) {
		t.Helper()
		must(t, os.WriteFile(at, []byte(offset+"\n"), 0o600))
	}
	move("+0")
	s := own(t, &mysqlserver.Options{Wrap: []string{"env", "LD_PRELOAD=" + preload, "FAKETIME_TIMESTAMP_FILE=" + at,
		"FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"}})
	b := open(t, mysql.Options{Address: mysqlserver.Address(s)})
	db := connect(t, mysqlserver.Address(s))
	defer db.Close()
	clock := func() (at time.Time) {
		t.Helper()
		var micros int64
		must(t, db.QueryRow("SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))").Scan(&micros))
		return time.UnixMicro(micros)
	}
	var last, expired uint64
	for _, offset := range []string{"+0", "+3600", "+0", "-3600", "+0"} {
		move(offset)
		hours, _ := time.ParseDuration(offset + "s")
		eventually(t, "the server's clock moves", func() bool { return (time.Until(clock()) - hours).Abs() < time.Minute })
		for range 3 {
			r := acquire(t, b, want("jobs", 5*time.Second))
			if r.Token <= last {
				t.Errorf("clock at %s: token %d after %d", offset, r.Token, last)
			}
			last = r.Token
			if h := held(t, second(b.TryAcquire(t.Context(), want("jobs", time.Second)))); h.TTL <= 0 || h.TTL > 5*time.Second {
				t.Errorf("clock at %s: refused for %v", offset, h.TTL)
			}
			release(t, b, r)
		}
		// After a lease expires, its end stays in the row. If the server's clock is then turned back, the
		// lease counts as held again, but at most for its TTL.
		r := want("expires", 300*time.Millisecond)
		eventually(t, "a lease that expired is gone", func() bool {
			token, err := b.TryAcquire(t.Context(), r)
			r.Token = token
			return err == nil
		})
		if r.Token <= expired {
			t.Errorf("clock at %s: token %d after %d", offset, r.Token, expired)
		}
		expired = r.Token
		eventually(t, "a lease expires", func() bool {
			h, err := b.Inspect(t.Context(), "expires")
			return err == nil && !h.Held()
		})
	}
}

func second(_ uint64, err error) error { return err }

// faketime returns the path of the library that moves a process's clock.
func faketime(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if err != nil || len(found) == 0 {
		servers.Missing(t, "faketime", &servers.NotInstalledError{Program: "libfaketime", Debian: "libfaketime", Homebrew: "libfaketime"})
	}
	return found[0]
}
