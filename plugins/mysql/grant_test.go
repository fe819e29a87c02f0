package mysql_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/mysql"
)

// firstSpan is the duration of a grant to a waiter, unless the waiter renews it.
var firstSpan = mysql.Spec.Properties.FirstSpan

// place puts the owner of the request r into the queue of a held lock without waiting.
func place(t *testing.T, b *mysql.Backend, r driver.Request) driver.Request {
	t.Helper()
	must(t, backendtest.Err(b.Wait(t.Context(), r, time.Millisecond)))
	return r
}

// given checks that the store has granted the lock to r's owner. It returns r with the token.
func given(t *testing.T, b *mysql.Backend, r driver.Request) driver.Request {
	t.Helper()
	h, err := b.Inspect(t.Context(), r.Name)
	must(t, err)
	if h.Owner != r.Owner || h.Label != r.Label || h.Token == 0 || h.TTL > firstSpan {
		t.Fatalf("the store has granted %q to %+v, not to %s", r.Name, h, r.Owner)
	}
	r.Token = h.Token
	return r
}

// TestReleaseGrants checks that a waiter is granted the lock with the waiter's label and value, for
// at most firstSpan. The waiter must rely on the grant no longer than the grant lasts in the store.
func TestReleaseGrants(t *testing.T) {
	w := newFixture(t)
	waiter := w.host(t)
	for name, ttl := range map[string]time.Duration{"short": 100 * time.Millisecond, "long": time.Minute} {
		carried := false
		for range 20 {
			holder := acquire(t, w.b, want(name, time.Minute))
			next := want(name, ttl)
			next.Label, next.Value = "a,b.c'\n", []byte{}
			if ttl > time.Second {
				next.Value = []byte("\x00,.'v")
			}
			told := make(chan driver.Grant, 1)
			go func() {
				g, err := waiter.Wait(t.Context(), next, 10*time.Second)
				if err != nil {
					t.Error(err)
				}
				told <- g
			}()
			eventually(t, "it sleeps", func() bool { return blocked(t, w.db, asleep) > 0 })
			must(t, w.b.Release(t.Context(), holder))
			g := <-told
			h, err := w.b.Inspect(t.Context(), name)
			must(t, err)
			now := time.Now()
			next.Token = g.Token
			_ = waiter.Withdraw(t.Context(), name, next.Owner)
			if g.Token == 0 || h.Owner != next.Owner {
				continue // this process was stopped until the grant had ended
			}
			carried = true
			if g.Token <= holder.Token || g.For != min(ttl, firstSpan) || h.Token != g.Token {
				t.Errorf("%s: granted %+v after token %d", name, g, holder.Token)
			}
			if g.Sent.Add(g.For).After(now.Add(h.TTL)) {
				t.Errorf("%s: the waiter counts on %v more, the store has %v", name, g.Sent.Add(g.For).Sub(now), h.TTL)
			}
			if h.Label != next.Label || string(h.Value) != string(next.Value) {
				t.Errorf("%s: the store says %+v", name, h)
			}
			break
		}
		if !carried {
			t.Errorf("%s: no wait has brought a grant", name)
		}
	}
}

// TestGrantFromTheFuture checks that no grant gets longer because the server's
// clock was turned forward while the waiter slept.
func TestGrantFromTheFuture(t *testing.T) {
	r, sent := want("jobs", firstSpan), time.Now().Add(-time.Second)
	for after, known := range map[time.Duration]bool{-time.Hour: true, 0: true, time.Hour: false} {
		g := mysql.Granted(r, sent, 7, after+firstSpan)
		if known != (g == driver.Grant{Token: 7, Sent: sent.Add(after), For: firstSpan}) || known == (g.Token == 0) {
			t.Errorf("made %v after the question, which was sent a second ago: %+v", after, g)
		}
	}
}

// TestFirstUseOfAGrant lets the store grant a lock to a waiter. The waiter's next operation must
// release the lock or turn the grant into a lease. A later TryAcquire must not renew this lease.
func TestFirstUseOfAGrant(t *testing.T) {
	w := newFixture(t)
	b, ctx := w.b, t.Context()
	other := func(r driver.Request, kind driver.OpKind) error {
		beside := acquire(t, b, want(r.Name+" beside", time.Minute))
		return b.Batch(ctx, []driver.Op{{Kind: kind, Request: beside}, {Kind: kind, Request: r}})[1].Err
	}
	for what, use := range map[string]func(r driver.Request) error{
		"ask": func(r driver.Request) error {
			token, err := b.TryAcquire(ctx, r)
			if err == nil && token != r.Token {
				t.Errorf("the answer has token %d, the grant %d", token, r.Token)
			}
			return err
		},
		"ask in a batch":       func(r driver.Request) error { return askInBatch(ctx, b, r) },
		"renew":                func(r driver.Request) error { return b.Renew(ctx, r) },
		"renewal of a batch":   func(r driver.Request) error { return other(r, driver.OpRenew) },
		"release":              func(r driver.Request) error { return b.Release(ctx, r) },
		"release of a batch":   func(r driver.Request) error { return other(r, driver.OpRelease) },
		"release withdrawal":   func(r driver.Request) error { return b.Withdraw(ctx, r.Name, r.Owner) },
		"release by operators": func(r driver.Request) error { return b.Break(ctx, r.Name, r.Token) },
		"release that keeps":   func(r driver.Request) error { r.Keep = time.Minute; return b.Release(ctx, r) },
	} {
		t.Run(what, func(t *testing.T) {
			holder := acquire(t, b, want(what, time.Minute))
			next := place(t, b, want(what, time.Minute))
			last := place(t, b, want(what, time.Minute))
			must(t, b.Release(ctx, holder))
			next = given(t, b, next)
			if err := use(next); err != nil {
				t.Fatalf("first use: %v", err)
			}
			if what == "release that keeps" {
				given(t, b, next)
				return
			}
			if strings.HasPrefix(what, "release") {
				if last = given(t, b, last); last.Token <= next.Token {
					t.Errorf("token %d after %d", last.Token, next.Token)
				}
				backendtest.NotHeld(t, b.Renew(ctx, next))
				backendtest.NotHeld(t, b.Release(ctx, next)) // releases it a second time
				must(t, b.Renew(ctx, given(t, b, last)))
				return
			}
			if h := held(t, second(b.TryAcquire(ctx, next))); h.Owner != next.Owner || h.TTL <= firstSpan {
				t.Errorf("asking again is refused because of %+v", h)
			}
		})
	}
}

func askInBatch(ctx context.Context, b *mysql.Backend, r driver.Request) error {
	return b.Batch(ctx, []driver.Op{
		{Kind: driver.OpAcquire, Request: want(r.Name+" beside", time.Minute)}, {Kind: driver.OpAcquire, Request: r},
	})[1].Err
}

// TestLongValueIsAskedFor checks that a published value that is too long for
// the queue is stored once its owner calls TryAcquire.
func TestLongValueIsAskedFor(t *testing.T) {
	w := newFixture(t)
	holder := acquire(t, w.b, want("jobs", time.Minute))
	next := want("jobs", time.Minute)
	next.Value = []byte(strings.Repeat("v", 5000))
	told := make(chan driver.Grant, 1)
	go func() {
		g, _ := w.b.Wait(t.Context(), next, time.Minute)
		told <- g
	}()
	eventually(t, "it sleeps", func() bool { return blocked(t, w.db, asleep) > 0 })
	must(t, w.b.Release(t.Context(), holder))
	if g := <-told; g.Token != 0 {
		t.Errorf("a grant without its value: %+v", g)
	}
	next = acquire(t, w.b, next)
	if h, err := w.b.Inspect(t.Context(), "jobs"); err != nil || string(h.Value) != string(next.Value) {
		t.Errorf("published %d bytes, %v", len(h.Value), err)
	}
}

// TestFreeLockIsGrantedToTheFirst checks that a lock whose lease has expired is granted to the
// first waiter, even if another owner asks for it first.
func TestFreeLockIsGrantedToTheFirst(t *testing.T) {
	w := newFixture(t)
	b, ctx := w.b, t.Context()
	for i, find := range []func(r driver.Request) error{
		func(driver.Request) error { return second(b.TryAcquire(ctx, want("jobs", time.Second))) },
		func(r driver.Request) error { return second(b.TryAcquire(ctx, r)) },
		func(r driver.Request) error { return askInBatch(ctx, b, r) },
	} {
		holder := acquire(t, b, want("jobs", time.Minute))
		first, behind := place(t, b, want("jobs", time.Minute)), place(t, b, want("jobs", time.Minute))
		_, err := w.db.Exec("UPDATE " + table(w.prefix) + " SET expires_at=UTC_TIMESTAMP(6) WHERE name='jobs'")
		must(t, err)
		if h := held(t, find(behind)); h.Owner != first.Owner || h.TTL > firstSpan {
			t.Errorf("way %d: refused because of %+v", i, h)
		}
		if first = given(t, b, first); first.Token <= holder.Token {
			t.Errorf("way %d: token %d after %d", i, first.Token, holder.Token)
		}
		must(t, b.Withdraw(ctx, "jobs", first.Owner))
		must(t, b.Withdraw(ctx, "jobs", behind.Owner))
	}
}

func TestKeptLeaseIsNotGranted(t *testing.T) {
	w := newFixture(t)
	holder := acquire(t, w.b, want("jobs", time.Minute))
	next := place(t, w.b, want("jobs", time.Minute))
	holder.Keep = 300 * time.Millisecond
	released := time.Now()
	must(t, w.b.Release(t.Context(), holder))
	if h := held(t, second(w.b.TryAcquire(t.Context(), next))); h.Owner != holder.Owner {
		t.Errorf("refused because of %+v", h)
	}
	eventually(t, "it is granted the lock", func() bool { return second(w.b.TryAcquire(t.Context(), next)) == nil })
	if took := time.Since(released); took < holder.Keep {
		t.Errorf("granted after %v", took)
	}
}

// through opens a host that reaches the server through a proxy.
func (w *fixture) through(t *testing.T, far time.Duration) (*inject.Proxy, *mysql.Backend) {
	t.Helper()
	at := strings.Index(w.address, "tcp(") + len("tcp(")
	end := at + strings.Index(w.address[at:], ")")
	if at < len("tcp(") {
		t.Skip("the server is not reached by TCP")
	}
	p, err := inject.NewProxy(w.address[at:end])
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	p.SetDistance(far)
	return p, open(t, mysql.Options{Address: w.address[:at] + p.Addr() + w.address[end:], Prefix: w.prefix})
}

// TestFirstWaitEntersFirst checks the first waiter of a process that cannot open a connection for
// signs of life. The waiter must enter the queue and get the lock in its turn.
func TestFirstWaitEntersFirst(t *testing.T) {
	w := newFixture(t)
	p, late := w.through(t, 0)
	holder := acquire(t, w.b, want("jobs", time.Minute))
	first := want("jobs", time.Minute)
	held(t, second(late.TryAcquire(t.Context(), first))) // over a connection that exists already
	must(t, p.SlowStart(timeout))
	place(t, late, first)
	next := place(t, w.b, want("jobs", time.Minute))
	place(t, late, first) // enters again, as a polling waiter does
	must(t, w.b.Release(t.Context(), holder))
	first = given(t, w.b, first)
	if got := acquire(t, late, first); got.Token != first.Token {
		t.Errorf("asked, and was granted token %d instead of %d", got.Token, first.Token)
	}
	place(t, w.b, next)
	must(t, late.Release(t.Context(), first))
	given(t, w.b, next)
	must(t, p.Heal())
}

// TestFarWaiters checks waiters whose round trip to the server takes 400 ms. Each must be granted
// the lock in its turn, when the previous lease ends.
func TestFarWaiters(t *testing.T) {
	w := newFixture(t)
	_, b := w.through(t, backendtest.Far)
	backendtest.FarWaiters(t, b, "jobs", func(waiters int) {
		eventually(t, "they sleep", func() bool { return blocked(t, w.db, asleep) == waiters })
	})
}

// TestCutOffWaiterIsPassedOver checks a process whose connections are cut, so that it gives no more
// signs of life. A release must skip its waiter, although the server believes that the connections
// live. A waiter that only misses its wake-up must get the grant when it asks.
func TestCutOffWaiterIsPassedOver(t *testing.T) {
	w := newFixture(t)
	p, cut := w.through(t, 0)
	holder := acquire(t, w.b, want("jobs", time.Minute))
	lost := place(t, cut, want("jobs", time.Minute))
	next := place(t, w.b, want("jobs", time.Minute))
	must(t, w.b.Release(t.Context(), holder))
	lost = given(t, w.b, lost)
	if got := acquire(t, cut, lost); got.Token != lost.Token {
		t.Errorf("asked, and was granted token %d instead of %d", got.Token, lost.Token)
	}
	lost, holder = place(t, cut, want("jobs", time.Minute)), lost
	must(t, p.BlackHole())
	must(t, w.b.Release(t.Context(), holder))
	next = given(t, w.b, next)
	must(t, w.b.Renew(t.Context(), next))
	pause(t, 4*firstSpan)
	last := place(t, w.b, want("jobs", time.Minute))
	must(t, w.b.Release(t.Context(), next))
	given(t, w.b, last)
	must(t, p.Heal())
}

func TestWithdrawalCrossesTheGrant(t *testing.T) {
	w := newFixture(t)
	waiter, ctx := w.host(t), t.Context()
	for i := range 100 {
		holder := acquire(t, w.b, want("jobs", time.Minute))
		gone := place(t, waiter, want("jobs", time.Minute))
		wctx, cancel := context.WithCancel(ctx)
		var work sync.WaitGroup
		work.Go(func() { _, _ = waiter.Wait(wctx, gone, time.Minute) })
		work.Go(func() { must(t, w.b.Release(ctx, holder)) })
		work.Go(func() { cancel(); must(t, waiter.Withdraw(ctx, gone.Name, gone.Owner)) })
		work.Wait()
		if _, err := waiter.TryAcquire(ctx, gone); !errors.Is(err, driver.ErrWithdrawn) {
			t.Fatalf("round %d: asked after the withdrawal: %v", i, err)
		}
		release(t, w.b, acquire(t, w.b, want("jobs", time.Minute)))
	}
}

func TestGrantOutlivesThePlugin(t *testing.T) {
	w := newFixture(t)
	before := w.host(t)
	holder := acquire(t, w.b, want("jobs", time.Minute))
	next := place(t, before, want("jobs", time.Minute))
	must(t, w.b.Release(t.Context(), holder))
	next = given(t, w.b, next)
	must(t, before.Close(t.Context()))
	if got := acquire(t, w.host(t), next); got.Token != next.Token {
		t.Errorf("token %d, and it was granted %d", got.Token, next.Token)
	}
}

// TestStorm checks that no two of 32 processes, which end at random moments, hold a lock at once.
func TestStorm(t *testing.T) {
	w := newFixture(t)
	o := mysql.Options{Address: w.address, Prefix: w.prefix, Connections: 2, Logger: slog.New(slog.DiscardHandler)}
	backendtest.Storm(t, func() (driver.Backend, error) { return mysql.Open(&o) }, 8*time.Second,
		func() time.Duration { return 300*time.Millisecond + rand.N(time.Second).Truncate(time.Millisecond) })
}

func TestHarmToAWaiter(t *testing.T) {
	w := newFixture(t)
	binary := plugintest.Build(t, "./lockplugin-mysql")
	h := plugintest.Binary(binary, func(drivertest.T) driver.Config {
		return driver.Config{"address": w.address, "prefix": w.prefix}
	})(t)
	backendtest.HarmToAWaiter(t, h, w.b)
}
