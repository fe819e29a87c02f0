package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockbench/lockbench/core/driver"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/mysql"
)

var product = regexp.MustCompile(`^(MariaDB|MySQL) \d+\.\d+\.\d+`)

func TestProperties(t *testing.T) {
	for name, c := range map[string]struct {
		o          mysqlserver.Options
		fencing    driver.Fencing
		durability string
	}{
		"durable":         {mysqlserver.Options{}, driver.FencingStrict, "innodb_flush_log_at_trx_commit=1"},
		"relaxed":         {mysqlserver.Options{Relaxed: true}, driver.FencingDurable, "innodb_flush_log_at_trx_commit=0"},
		"unsynced binlog": {mysqlserver.Options{Args: []string{"--log-bin", "--server-id=1", "--sync-binlog=0"}}, driver.FencingDurable, "innodb_flush_log_at_trx_commit=1, sync_binlog=0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, mysql.Options{Address: mysqlserver.Address(own(t, &c.o))})
			must(t, b.Check(t.Context()))
			p := b.Properties()
			if p.Fencing != c.fencing || p.Durability != c.durability || !product.MatchString(p.Server) {
				t.Errorf("%s, %q, %q", p.Fencing, p.Durability, p.Server)
			}
		})
	}
}

func TestPolling(t *testing.T) {
	w := newFixture(t)
	b := open(t, mysql.Options{Address: w.address, Prefix: w.prefix, WaitConnections: -1})
	r := acquire(t, w.b, want("jobs", 10*time.Second))
	mine := want("jobs", 10*time.Second)
	must(t, backendtest.Err(b.Wait(t.Context(), mine, 10*time.Second)))
	if h := held(t, second(b.TryAcquire(t.Context(), mine))); h.Waiters != 1 {
		t.Errorf("%d wait, want 1", h.Waiters)
	}
	release(t, w.b, r)
	held(t, second(w.b.TryAcquire(t.Context(), want("jobs", time.Second))))
	acquire(t, b, mine)
}

func TestPurge(t *testing.T) {
	w := newFixture(t)
	release(t, w.b, acquire(t, w.b, want("old", time.Second)))
	release(t, w.b, acquire(t, w.b, want("young", time.Second)))
	acquire(t, w.b, want("held", time.Minute))
	// This row belongs to a holder and a waiter that have died.
	acquire(t, w.b, want("dead", time.Second))
	_, err := w.db.Exec("UPDATE " + table(w.prefix) + " SET queue=',owner.2iplosywzrxw5.0.500000.686f7374.-.1' WHERE name='dead'")
	must(t, err)
	age(t, w, "old", 25)
	age(t, w, "dead", 25)
	n, err := w.b.Purge(t.Context())
	if err != nil || n != 2 {
		t.Fatalf("purged %d, %v", n, err)
	}
	var left int
	if err := w.db.QueryRow("SELECT COUNT(*) FROM " + table(w.prefix)).Scan(&left); err != nil || left != 2 {
		t.Errorf("%d rows are left, want 2: %v", left, err)
	}
}

// TestPurgeKeepsTokensAheadOfTheClock checks that a row whose token is ahead of
// the server's clock is purged only when the clock has passed the token by a day.
func TestPurgeKeepsTokensAheadOfTheClock(t *testing.T) {
	w := newFixture(t)
	purged := func() int {
		t.Helper()
		n, err := w.b.Purge(t.Context())
		must(t, err)
		return n
	}
	ahead := acquire(t, w.b, want("ahead", time.Second))
	release(t, w.b, ahead)
	age(t, w, "ahead", -48)
	ahead.Token += uint64(48 * time.Hour / time.Microsecond)
	// After the clock was corrected, another owner acquires the lock.
	_, err := w.db.Exec("UPDATE " + table(w.prefix) + " SET expires_at=UTC_TIMESTAMP(6)-INTERVAL 1 MINUTE")
	must(t, err)
	next := acquire(t, w.b, want("ahead", time.Second))
	release(t, w.b, next)
	if next.Token != ahead.Token+1 {
		t.Fatalf("token %d after %d", next.Token, ahead.Token)
	}
	_, err = w.db.Exec("UPDATE " + table(w.prefix) + " SET expires_at=expires_at-INTERVAL 25 HOUR")
	must(t, err)
	if n := purged(); n != 0 {
		t.Errorf("purged %d rows whose token is ahead of the clock", n)
	}
	if last := acquire(t, w.b, want("ahead", time.Second)); last.Token <= next.Token {
		t.Errorf("token %d after %d, once rows were purged", last.Token, next.Token)
	} else {
		release(t, w.b, last)
	}
	age(t, w, "ahead", 48+25)
	if n := purged(); n != 1 {
		t.Errorf("purged %d rows whose token is a day old", n)
	}
}

// age moves the token and all times in a lock's row back by hours, or forward if hours is negative.
func age(t *testing.T, w *fixture, name string, hours int) {
	t.Helper()
	_, err := w.db.Exec("UPDATE "+table(w.prefix)+" SET token=CAST(token AS SIGNED)-?*3600000000,expires_at=expires_at-INTERVAL ? HOUR,barred_since=barred_since-INTERVAL ? HOUR WHERE name=?",
		hours, hours, hours, []byte(name))
	must(t, err)
}

func TestInvalid(t *testing.T) {
	b := open(t, mysql.Options{Address: "me@tcp(127.0.0.1:1)/app"})
	for _, owner := range []string{"", "a'b", "ü", strings.Repeat("a", 65)} {
		if _, err := b.TryAcquire(t.Context(), driver.Request{Name: "jobs", Owner: owner, TTL: time.Second}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("owner %q: %v", owner, err)
		}
	}
}

func TestClose(t *testing.T) {
	w := newFixture(t)
	b := w.host(t)
	r := acquire(t, b, want("jobs", 10*time.Second))
	waiting := make(chan error, 1)
	go func() { waiting <- backendtest.Err(b.Wait(t.Context(), want("jobs", time.Second), 10*time.Second)) }()
	eventually(t, "it waits", func() bool { return blocked(t, w.db, asleep) > 0 })
	leaks := goleak.IgnoreCurrent()
	extra := w.host(t)
	acquire(t, extra, want("other", time.Second))
	must(t, extra.Close(t.Context()))
	goleak.VerifyNone(t, leaks)
	must(t, b.Close(t.Context()))
	if err := <-waiting; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("the waiter: %v", err)
	}
	if err := b.Renew(context.Background(), r); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("renewing after Close: %v", err)
	}
	if h, err := w.b.Inspect(t.Context(), "jobs"); err != nil || h.Owner != r.Owner {
		t.Errorf("Close does not release: %+v, %v", h, err)
	}
}

// TestReleaseWakesFirst closes a backend right after its release, as a plugin does
// when its host has died. The release must wake the waiter before it returns.
func TestReleaseWakesFirst(t *testing.T) {
	w := newFixture(t)
	for range 20 {
		holder := w.host(t)
		r := acquire(t, holder, want("jobs", time.Minute))
		mine := want("jobs", time.Minute)
		woken := make(chan error, 1)
		go func() { woken <- backendtest.Err(w.b.Wait(t.Context(), mine, 10*time.Second)) }()
		eventually(t, "it waits", func() bool { return blocked(t, w.db, asleep) > 0 })
		release(t, holder, r)
		released := time.Now()
		must(t, holder.Close(t.Context()))
		must(t, <-woken)
		if took := time.Since(released); took > 5*time.Second {
			t.Fatalf("the waiter was woken after %v", took)
		}
		release(t, w.b, acquire(t, w.b, mine))
	}
}

// TestManyAreWokenTogether lets a host release many locks at once, each with a waiter. In an
// earlier version, waiters on MariaDB ran SLEEP, and a wake-up sometimes took two seconds.
func TestManyAreWokenTogether(t *testing.T) {
	w := newFixture(t)
	holder := w.host(t)
	const locks = 30
	for range 30 {
		held := make([]driver.Op, locks)
		next := make([]driver.Request, locks)
		for i := range held {
			name := fmt.Sprintf("job %d", i)
			held[i] = driver.Op{Kind: driver.OpRelease, Request: acquire(t, holder, want(name, time.Minute))}
			next[i] = want(name, time.Minute)
		}
		var woken sync.WaitGroup
		for _, r := range next {
			woken.Go(func() {
				if _, err := w.b.Wait(t.Context(), r, 10*time.Second); err != nil {
					t.Error(err)
				}
			})
		}
		eventually(t, "all wait", func() bool { return blocked(t, w.db, asleep) == locks })
		released := time.Now()
		for _, r := range holder.Batch(t.Context(), held) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		woken.Wait()
		if took := time.Since(released); took > 1900*time.Millisecond {
			t.Fatalf("the last of %d waiters was woken after %v", locks, took)
		}
		for _, r := range next {
			release(t, w.b, acquire(t, w.b, r))
		}
	}
}

// TestObserversShareAQuery lets a host observe a hundred elections. One query
// must read all of them, and each observer must see the changes of its election.
func TestObserversShareAQuery(t *testing.T) {
	w := newFixture(t)
	const elections, every = 100, 25 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	var seen [elections]atomic.Uint64 // the last token seen, plus one
	for i := range seen {
		all.Go(func() {
			err := w.b.Observe(ctx, fmt.Sprint("election/", i), func(h driver.Holder) { seen[i].Store(h.Token + 1) })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("observing %d: %v", i, err)
			}
		})
	}
	shown := func(what string, tokens [elections]uint64) {
		eventually(t, what, func() bool {
			for i := range seen {
				if seen[i].Load() != tokens[i]+1 {
					return false
				}
			}
			return true
		})
	}
	var tokens [elections]uint64
	shown("all are seen vacant", tokens)
	began, before := time.Now(), status(t, w.db, "Com_select")
	pause(t, 40*every)
	asked, most := status(t, w.db, "Com_select")-before, int(time.Since(began)/every)+2
	if asked > most {
		t.Errorf("%d queries in %v for %d elections, at most %d are due", asked, time.Since(began), elections, most)
	}
	for i := range tokens {
		tokens[i] = acquire(t, w.b, want(fmt.Sprint("election/", i), time.Minute)).Token
	}
	shown("all leaders are seen", tokens)
	cancel()
	all.Wait()
}
