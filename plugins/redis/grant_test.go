package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// place puts the owner of r into the queue of a held lock, without waiting for the lock.
func place(t *testing.T, b *Backend, r driver.Request) driver.Request {
	t.Helper()
	must(t, backendtest.Err(b.Wait(t.Context(), r, time.Millisecond)))
	return r
}

// given checks that the store has granted r.Owner the lock, and returns r with the grant's token.
func given(t *testing.T, b *Backend, r driver.Request) driver.Request {
	t.Helper()
	h, err := b.Inspect(t.Context(), r.Name)
	must(t, err)
	if h.Owner != r.Owner || h.Label != r.Label || h.Token == 0 || h.TTL > kit.FirstSpan {
		t.Fatalf("the store has granted %q to %+v, not to %s", r.Name, h, r.Owner)
	}
	r.Token = h.Token
	return r
}

// through returns a proxy, and a backend that reaches the server s through the proxy. The backend's
// first connection is for pushes (messages about grants to waiters).
func through(t *testing.T, s *servers.Server) (*inject.Proxy, *Backend) {
	t.Helper()
	p, err := inject.NewProxy(s.Addr())
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	b := connect(t, Options{Address: []string{p.Addr()}})
	_, err = b.node.Wakeups.Ready(t.Context())
	must(t, err)
	return p, b
}

// A release grants the first waiter the lock, with the waiter's label and value. The grant lasts
// 0.5 s, or the TTL if less. The waiter counts from its last sign of life before the grant.
func TestReleaseGrants(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	for name, ttl := range map[string]time.Duration{"short": 100 * time.Millisecond, "middle": 700 * time.Millisecond, "long": time.Minute} {
		holder := acquire(t, b, lease(name, "first"))
		next := lease(name, "next-"+name)
		next.TTL, next.Label, next.Value = ttl, "50%0 a\nb\n", []byte("\n%1\x00%")
		place(t, b, next)
		must(t, b.Release(ctx, holder))
		g, err := b.Wait(ctx, next, time.Minute)
		must(t, err)
		h, err := b.Inspect(ctx, name)
		must(t, err)
		left, now := c.PTTL(ctx, name).Val(), time.Now()
		if g.Token == 0 { // this process ran too late, after the grant had ended
			continue
		}
		if g.Token <= holder.Token || g.For != min(ttl, kit.FirstSpan) {
			t.Errorf("%s: granted %+v after token %d", name, g, holder.Token)
		}
		if left > 0 && g.Sent.Add(g.For).After(now.Add(left+time.Millisecond)) {
			t.Errorf("%s: the waiter counts on %v more, the store has %v", name, time.Until(g.Sent.Add(g.For)), left)
		}
		if left > 0 && (h.Owner != next.Owner || h.Label != next.Label || string(h.Value) != string(next.Value) || h.Token != g.Token) {
			t.Errorf("%s: the store says %+v of the grant %+v", name, h, g)
		}
	}
}

// After the store has granted a waiter the lock for 0.5 s, the waiter's first operation may be of
// any kind, and works as with an ordinary lease. A later acquire by the same owner is refused.
func TestFirstUseOfAGrant(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	keep := func(r driver.Request) driver.Request { r.Keep = time.Minute; return r }
	for what, use := range map[string]func(r driver.Request) error{
		"ask": func(r driver.Request) error {
			token, err := b.TryAcquire(ctx, r)
			if err == nil && token != r.Token {
				t.Errorf("the answer has token %d, the grant %d", token, r.Token)
			}
			return err
		},
		"renew":                func(r driver.Request) error { return b.Renew(ctx, r) },
		"proclaim":             func(r driver.Request) error { return errors.Join(b.Proclaim(ctx, r), b.Renew(ctx, r)) },
		"renewal of a batch":   func(r driver.Request) error { return b.Batch(ctx, renewals(t, b, r))[1].Err },
		"release":              func(r driver.Request) error { return b.Release(ctx, r) },
		"release that keeps":   func(r driver.Request) error { return b.Release(ctx, keep(r)) },
		"release of a batch":   func(r driver.Request) error { return b.Batch(ctx, releases(t, b, r))[1].Err },
		"withdrawal":           func(r driver.Request) error { return b.Withdraw(ctx, r.Name, r.Owner) },
		"break by an operator": func(r driver.Request) error { return b.Break(ctx, r.Name, r.Token) },
	} {
		t.Run(what, func(t *testing.T) {
			name := strings.ReplaceAll(what, " ", "-")
			holder := acquire(t, b, lease(name, "first"))
			next := place(t, b, lease(name, "next-"+name))
			last := place(t, b, lease(name, "last-"+name))
			must(t, b.Release(ctx, holder))
			next = given(t, b, next)
			if err := use(next); err != nil {
				t.Fatalf("first use: %v", err)
			}
			if what == "release that keeps" {
				given(t, b, next)
				return
			}
			if strings.HasPrefix(what, "release") || what == "withdrawal" || what == "break by an operator" {
				if last = given(t, b, last); last.Token <= next.Token {
					t.Errorf("token %d after %d", last.Token, next.Token)
				}
				notHeld(t, b.Renew(ctx, next))
				notHeld(t, b.Release(ctx, next))
				given(t, b, last)
				return
			}
			if left := c.PTTL(ctx, name).Val(); left <= kit.FirstSpan {
				t.Errorf("after its first use the lease has %v left", left)
			}
			_, err := b.TryAcquire(ctx, next)
			if h := held(t, err); h.Owner != next.Owner {
				t.Errorf("asking again is refused because of %+v", h)
			}
		})
	}
	own := acquire(t, b, lease("own", "o"))
	_, err := b.TryAcquire(ctx, own)
	held(t, err)
}

// renewals acquires another lock, and returns the renewals of that lock's lease and of r.
func renewals(t *testing.T, b *Backend, r driver.Request) []driver.Op {
	other := acquire(t, b, lease(r.Name+"-beside", "o"))
	return []driver.Op{{Kind: driver.OpRenew, Request: other}, {Kind: driver.OpRenew, Request: r}}
}

func releases(t *testing.T, b *Backend, r driver.Request) []driver.Op {
	ops := renewals(t, b, r)
	ops[0].Kind, ops[1].Kind = driver.OpRelease, driver.OpRelease
	return ops
}

// A waiter whose value is too long for the queue must send an acquire, which stores the value.
func TestLongValueIsAskedFor(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))
	next := lease("a", "next")
	next.Value = []byte(strings.Repeat("v\n", 5000))
	place(t, b, next)
	must(t, b.Release(ctx, holder))
	if g, err := b.Wait(ctx, next, time.Minute); err != nil || g.Token != 0 {
		t.Fatalf("a grant without its value: %+v, %v", g, err)
	}
	next = acquire(t, b, next)
	if h, err := b.Inspect(ctx, "a"); err != nil || string(h.Value) != string(next.Value) {
		t.Errorf("published %d bytes, %v", len(h.Value), err)
	}
}

// A second release, or a release of a lost lease, does not end the next owner's grant.
func TestReleaseTwice(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))
	next := place(t, b, lease("a", "next"))
	results := b.Batch(ctx, []driver.Op{{Kind: driver.OpRelease, Request: holder}, {Kind: driver.OpRelease, Request: holder}})
	must(t, results[0].Err)
	notHeld(t, results[1].Err)
	notHeld(t, b.Release(ctx, holder))
	must(t, b.Renew(ctx, given(t, b, next)))
}

// If another owner's request finds an expired lock, the store grants the lock to the first waiter.
func TestFreeLockIsGrantedToTheFirst(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	for what, find := range map[string]func() error{
		"a stranger":          func() error { return backendtest.Err(b.TryAcquire(ctx, lease("a", "stranger"))) },
		"the second":          func() error { return backendtest.Err(b.TryAcquire(ctx, lease("a", "second"))) },
		"a waiter that comes": func() error { return backendtest.Err(b.Wait(ctx, lease("a", "third"), time.Millisecond)) },
		"a batch": func() error {
			ops := []driver.Op{{Kind: driver.OpAcquire, Request: lease("other", "o")}, {Kind: driver.OpAcquire, Request: lease("a", "stranger")}}
			return b.Batch(ctx, ops)[1].Err
		},
	} {
		must(t, c.FlushAll(ctx).Err())
		holder := acquire(t, b, lease("a", "first"))
		first := place(t, b, lease("a", "next"))
		place(t, b, lease("a", "second"))
		must(t, c.Del(ctx, "a").Err())
		err := find()
		if first = given(t, b, first); first.Token <= holder.Token {
			t.Errorf("%s: token %d after %d", what, first.Token, holder.Token)
		}
		if err != nil {
			if h := held(t, err); h.Owner != "next" || h.TTL > kit.FirstSpan {
				t.Errorf("%s: refused because of %+v", what, h)
			}
		}
		for _, w := range []string{"next", "second", "third"} {
			must(t, b.Withdraw(ctx, "a", w))
		}
	}
}

// Between the acquires of a batch, a release and a withdrawal grant locks to waiters. All tokens of
// the batch still rise in order, even if the server's clock is behind the tokens.
func TestTokensRiseThroughABatch(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	holder, gone := acquire(t, b, lease("a", "first")), acquire(t, b, lease("g", "gone"))
	next, after := place(t, b, lease("a", "next")), place(t, b, lease("g", "after"))
	must(t, c.SetRange(ctx, "~s:{}", 0, fmt.Sprintf("%016d", uint64(1)<<52)).Err())
	gone.Token = 0
	results := b.Batch(ctx, []driver.Op{
		{Kind: driver.OpAcquire, Request: lease("x", "x")}, {Kind: driver.OpRelease, Request: holder},
		{Kind: driver.OpAcquire, Request: lease("y", "y")}, {Kind: driver.OpWithdraw, Request: gone},
		{Kind: driver.OpAcquire, Request: lease("z", "z")},
	})
	tokens := []uint64{results[0].Token, given(t, b, next).Token, results[2].Token, given(t, b, after).Token, results[4].Token,
		acquire(t, b, lease("last", "o")).Token}
	for i, token := range tokens {
		if want := uint64(1)<<52 + 1 + uint64(i); token != want {
			t.Errorf("tokens %d, number %d should be %d", tokens, i, want)
		}
	}
}

// A release with Keep leaves the lock taken for the time Keep. After that, a waiter gets the lock.
func TestKeptLeaseIsNotGranted(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))
	next := place(t, b, lease("a", "next"))
	holder.Keep = 300 * time.Millisecond
	released := time.Now()
	must(t, b.Release(ctx, holder))
	if g, err := b.Wait(ctx, next, time.Minute); err != nil || g.Token != 0 {
		t.Errorf("the waiter is told %+v, %v", g, err) // the waiter must only be told to ask
	}
	receive(t, pursue(t, b, next), "after that")
	if took := time.Since(released); took < holder.Keep {
		t.Errorf("granted after %v", took)
	}
}

// When two signs of life of a process are missing, the store skips this process's waiters, even if
// the process's connections to the server are still open.
func TestCutOffWaiterIsPassedOver(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	p, cut := through(t, s)
	holder := acquire(t, b, lease("a", "first"))
	place(t, cut, lease("a", "cut"))
	id := process(t, c, "cut")
	next := place(t, b, lease("a", "next"))
	must(t, p.BlackHole())
	eventually(t, "the process is not heard of", func() bool { return !signs(t, c, id) })
	place(t, b, next)
	must(t, b.Release(ctx, holder))
	given(t, b, next)
	must(t, p.Heal())
}

// If the message about a grant is lost, the waiter's next acquire returns the token of this grant.
func TestPushIsLost(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	ctx := t.Context()
	p, deaf := through(t, s)
	holder := acquire(t, b, lease("a", "first"))
	next := lease("a", "next")
	_, err := deaf.TryAcquire(ctx, next) // over a newer connection than the one for wake-ups
	held(t, err)
	place(t, deaf, next)
	must(t, p.Silence())
	must(t, b.Release(ctx, holder))
	next = given(t, b, next)
	if g, err := deaf.Wait(ctx, next, 10*time.Millisecond); err != nil || g.Token != 0 {
		t.Fatalf("a push that was lost brings %+v, %v", g, err)
	}
	if got := acquire(t, deaf, next); got.Token != next.Token {
		t.Errorf("asked, and was granted token %d instead of %d", got.Token, next.Token)
	}
}

// A waiter ignores a message about a grant that has already ended.
func TestPushIsLate(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	p, far := through(t, s)
	holder := acquire(t, b, lease("a", "first"))
	next := place(t, far, lease("a", "next"))
	must(t, p.Delay(kit.FirstSpan+100*time.Millisecond, 0))
	told := make(chan driver.Grant, 1)
	go func() {
		g, _ := far.Wait(ctx, next, time.Minute)
		told <- g
	}()
	must(t, b.Release(ctx, holder))
	given(t, b, next)
	eventually(t, "the store's grant is over", func() bool { return c.Exists(ctx, "a").Val() == 0 })
	if g := <-told; g.Token != 0 {
		t.Errorf("a late push brings %+v", g)
	}
	must(t, p.Heal())
	receive(t, pursue(t, far, next), "it asks and is granted the lock")
}

// A sign of life and a release arrive while the server is frozen. When the server resumes, the
// delayed sign makes it grant the lock. The waiter must not expect a longer grant than the store's.
func TestStorePaused(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()
	for range 5 {
		holder := acquire(t, b, lease("a", "first"))
		next := place(t, b, lease("a", fmt.Sprint("next", holder.Token)))
		must(t, s.Freeze())
		released := make(chan error, 1)
		go func() { released <- b.Release(ctx, holder) }()
		<-time.After(300 * time.Millisecond) // one or two signs and the release are under way
		must(t, s.Resume())
		must(t, <-released)
		g, err := b.Wait(ctx, next, 100*time.Millisecond)
		must(t, err)
		left, now := c.PTTL(ctx, "a").Val(), time.Now()
		if g.Token != 0 && left > 0 && g.Sent.Add(g.For).After(now.Add(left+time.Millisecond)) {
			t.Errorf("the waiter counts on %v more, the store has %v", time.Until(g.Sent.Add(g.For)), left)
		}
		if next.Token = g.Token; g.Token == 0 {
			next = receive(t, pursue(t, b, next), "it asks and is granted the lock")
		}
		must(t, b.Release(ctx, next))
	}
}

// If a waiter is withdrawn while the store grants it the lock, the next owner gets the lock.
func TestWithdrawalCrossesTheGrant(t *testing.T) {
	s := start(t, nil)
	holders, waiter := connect(t, at(s)), connect(t, at(s))
	ctx := t.Context()
	for i := range 200 {
		holder := acquire(t, holders, lease("a", fmt.Sprint("holder", i)))
		gone := place(t, waiter, lease("a", fmt.Sprint("gone", i)))
		wctx, cancel := context.WithCancel(ctx)
		var work sync.WaitGroup
		work.Go(func() { _, _ = waiter.Wait(wctx, gone, time.Minute) })
		work.Go(func() { must(t, holders.Release(ctx, holder)) })
		work.Go(func() { cancel(); must(t, waiter.Withdraw(ctx, gone.Name, gone.Owner)) })
		work.Wait()
		_, err := waiter.TryAcquire(ctx, gone)
		if !errors.Is(err, driver.ErrWithdrawn) {
			t.Fatalf("round %d: asked after the withdrawal: %v", i, err)
		}
		must(t, holders.Release(ctx, acquire(t, holders, lease("a", fmt.Sprint("next", i)))))
	}
}

// If the waiter's plugin dies after the store's grant, the next acquire returns the grant's token.
func TestGrantOutlivesThePlugin(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	ctx := t.Context()
	holder := acquire(t, b, lease("a", "first"))
	before := connect(t, at(s))
	next := place(t, before, lease("a", "next"))
	must(t, b.Release(ctx, holder))
	next = given(t, b, next)
	must(t, before.Close(ctx))
	if got := acquire(t, connect(t, at(s)), next); got.Token != next.Token {
		t.Errorf("token %d, and it was granted %d", got.Token, next.Token)
	}
}

// With WaitReplicas, a waiter must not use a pushed grant, because the replicas may not have it.
func TestGrantWaitsForReplicas(t *testing.T) {
	master := start(t, &redisserver.Options{Lines: []string{"repl-diskless-sync-delay 0"}})
	host, port, _ := strings.Cut(master.Addr(), ":")
	start(t, &redisserver.Options{Lines: []string{"replicaof " + host + " " + port}})
	c := plain(t, master)
	eventually(t, "the replica confirms", func() bool {
		must(t, c.Set(t.Context(), "x", "", 0).Err())
		n, err := c.Wait(t.Context(), 1, time.Second).Result()
		must(t, err)
		return n == 1
	})
	o := at(master)
	o.WaitReplicas, o.WaitTimeout = 1, backendtest.Timeout // a busy replica answers late
	b := connect(t, o)
	holder := acquire(t, b, lease("a", "first"))
	next := place(t, b, lease("a", "next"))
	must(t, b.Release(t.Context(), holder))
	if g, err := b.Wait(t.Context(), next, time.Minute); err != nil || g.Token != 0 {
		t.Errorf("granted %+v, %v, which no replica has confirmed", g, err)
	}
	acquire(t, b, next)
}

// While the backend refuses acquires (node.Refuse), a waiter also ignores a grant by the store.
func TestGrantIsRefused(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	holder := acquire(t, b, lease("a", "first"))
	next := place(t, b, lease("a", "next"))
	b.node.Refuse(driver.ErrDenied)
	must(t, b.Release(t.Context(), holder))
	if g, err := b.Wait(t.Context(), next, time.Minute); err != nil || g.Token != 0 {
		t.Errorf("granted %+v, %v", g, err)
	}
}

// Waiters with a round trip of 400 ms get the lock in order. Each gets the lock when the previous
// lease ends, and early enough to renew the grant in time.
func TestFarWaiters(t *testing.T) {
	s := start(t, nil)
	p, c := backendtest.NewProxy(t, s.Addr()), plain(t, s)
	p.SetDistance(backendtest.Far)
	backendtest.FarWaiters(t, connect(t, Options{Address: []string{p.Addr()}}), "a", func(waiters int) {
		backendtest.Eventually(t, "they wait", func() bool { return strings.Count(c.Get(t.Context(), "~q:{a}").Val(), "\n") == waiters })
	})
}
