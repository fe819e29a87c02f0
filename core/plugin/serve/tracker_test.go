package serve

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/memory"
)

func req(name, owner string) driver.Request {
	return driver.Request{Name: name, Owner: owner, TTL: time.Minute}
}

// fixture is a tracker over a memory store. Tests inspect that store through a second backend.
type fixture struct {
	*tracker
	other driver.Backend
}

func newFixture(t *testing.T, wrap func(driver.Backend) driver.Backend) fixture {
	t.Helper()
	store := memory.NewStore()
	b := store.Open()
	other := store.Open()
	t.Cleanup(func() {
		for _, b := range []driver.Backend{b, other} {
			if err := b.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	return fixture{newTracker(wrap(b)), other}
}

func same(b driver.Backend) driver.Backend { return b }

// plain returns the backend b without its optional capabilities.
func plain(b driver.Backend) driver.Backend { return bare{b} }

type bare struct{ driver.Backend }

func (p bare) Properties() driver.Properties {
	props := p.Backend.Properties()
	props.Capabilities = nil
	return props
}

func (f fixture) grant(t *testing.T, r driver.Request) driver.Request {
	t.Helper()
	token, err := f.TryAcquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	r.Token = token
	return r
}

func (f fixture) holder(t *testing.T, name string) driver.Holder {
	t.Helper()
	h, err := f.other.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// die does what the plugin does when the host dies, and fails the test if an owner is left.
func (f fixture) die(t *testing.T) {
	t.Helper()
	f.refuse()
	ctx, cancel := context.WithTimeout(t.Context(), releaseBudget)
	defer cancel()
	if left := f.releaseAll(ctx); left != 0 {
		t.Errorf("%d owners are left", left)
	}
}

func TestTrackerKnowsWhatIsHeld(t *testing.T) {
	f := newFixture(t, same)
	ctx := t.Context()
	known := func(want int, after string) {
		t.Helper()
		if got := len(f.entries); got != want {
			t.Errorf("%d entries after %s, want %d", got, after, want)
		}
	}
	a := f.grant(t, req("a", "1"))
	known(1, "a grant")
	if _, err := f.TryAcquire(ctx, req("a", "2")); !errors.Is(err, driver.ErrHeld) {
		t.Error(err)
	}
	known(1, "a refusal")
	denied := driver.Op{Kind: driver.OpAcquire, Request: req("a", "3")}
	if err := f.enter(denied); err != nil {
		t.Error(err)
	}
	f.granted(denied.Request, 0, driver.ErrDenied)
	known(1, "a denial")
	if _, err := f.Wait(ctx, req("a", "2"), time.Millisecond); err != nil {
		t.Error(err)
	}
	known(2, "a wait")
	if _, err := f.TryAcquire(ctx, req("a", "2")); !errors.Is(err, driver.ErrHeld) {
		t.Error(err)
	}
	known(2, "a refusal of a waiter")
	if err := f.Withdraw(ctx, "a", "2"); err != nil {
		t.Error(err)
	}
	known(1, "a withdrawal")
	if err := f.Release(ctx, a); err != nil {
		t.Error(err)
	}
	known(0, "a release")
	c := f.grant(t, req("a", "3"))
	if err := f.Renew(ctx, a); !errors.Is(err, driver.ErrNotHeld) {
		t.Error(err)
	}
	known(1, "a renewal that found nothing")
	results := f.Batch(ctx, []driver.Op{
		{Kind: driver.OpRenew, Request: c}, {Kind: driver.OpRelease, Request: c},
		{Kind: driver.OpAcquire, Request: req("a", "4")}, {Kind: driver.OpAcquire, Request: req("a", "5")},
	})
	if results[0].Err != nil || results[1].Err != nil || results[2].Err != nil || !errors.Is(results[3].Err, driver.ErrHeld) {
		t.Errorf("got %v", results)
	}
	known(1, "a batch")
}

// If Wait has returned a grant before the host's death, the tracker must renew it during the delay
// and then release it. When the owner calls TryAcquire, the tracker must forget a grant from Wait,
// because the store may have granted the lock again.
func TestTrackerKnowsTheStoresGrants(t *testing.T) {
	f := newFixture(t, same)
	wait := func(owner string) driver.Grant {
		t.Helper()
		g, err := f.Wait(t.Context(), req(owner, owner), time.Second)
		if e := f.entries[owner]; err != nil || g.Token == 0 || !e.granted || e.token != g.Token {
			t.Errorf("a wait for a free lock: %+v, %v; known as %+v", g, err, e)
		}
		return g
	}
	g := wait("a")
	asks := driver.Op{Kind: driver.OpAcquire, Request: req("a", "a")}
	if err := f.enter(asks); err != nil || f.entries["a"].granted {
		t.Errorf("an acquire on its way: %+v, %v", f.entries["a"], err)
	}
	f.granted(asks.Request, g.Token, nil)
	wait("b")
	f.refuse()
	f.keep(time.Now().Add(600 * time.Millisecond)) // without a renewal, a grant from Wait ends earlier
	for _, name := range []string{"a", "b"} {
		if h := f.holder(t, name); h.Owner != name {
			t.Errorf("%s is held by %+v", name, h)
		}
	}
	f.die(t)
	for _, name := range []string{"a", "b"} {
		if h := f.holder(t, name); h.Held() {
			t.Errorf("%s is held by %+v", name, h)
		}
	}
}

// After a plugin crash, a new process must learn a lease and its Keep from the lease's renewal.
func TestTrackerLearnsFromRenewals(t *testing.T) {
	f := newFixture(t, same)
	r := f.grant(t, req("a", "1"))
	r.Keep = time.Hour
	again := fixture{newTracker(f.Backend), f.other}
	if err := again.Renew(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	e := again.entries["1"]
	if e == nil || e.token != r.Token || time.Until(e.keepUntil) < 59*time.Minute {
		t.Errorf("got %+v", e)
	}
	again.die(t)
	if h := f.holder(t, "a"); !h.Held() {
		t.Error("the lock was not kept")
	}
}

func TestDeathReleasesAndWithdraws(t *testing.T) {
	for name, wrap := range map[string]func(driver.Backend) driver.Backend{"batch": same, "single": plain} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, wrap)
			const locks = 600 // more locks than fit into one batch
			for i := range locks {
				f.grant(t, req(fmt.Sprint(i), fmt.Sprint("owner-", i)))
			}
			kept := req("kept", "k")
			kept.Keep = 30 * time.Second
			f.grant(t, kept)
			if _, err := f.other.TryAcquire(t.Context(), req("theirs", "t")); err != nil {
				t.Fatal(err)
			}
			f.die(t)
			for i := range locks {
				if h := f.holder(t, fmt.Sprint(i)); h.Held() {
					t.Fatalf("lock %d is held by %s", i, h.Owner)
				}
			}
			if h := f.holder(t, "kept"); h.TTL <= 15*time.Second || h.TTL > 30*time.Second {
				t.Errorf("what is kept has %v left", h.TTL)
			}
			if h := f.holder(t, "theirs"); h.Owner != "t" {
				t.Errorf("their lock is held by %+v", h)
			}
			if _, err := f.TryAcquire(t.Context(), req("late", "l")); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("a request of the dead host: %v", err)
			}
			results := f.Batch(t.Context(), []driver.Op{{Kind: driver.OpAcquire, Request: req("late", "l")}})
			if len(results) != 1 || !errors.Is(results[0].Err, driver.ErrClosed) {
				t.Errorf("a batch of the dead host: %v", results)
			}
		})
	}
}

// slow is a backend whose TryAcquire waits until its goOn channel is closed, even after ctx ended.
type slow struct {
	driver.Backend
	asked, goOn chan struct{}
}

func (s *slow) TryAcquire(_ context.Context, r driver.Request) (uint64, error) {
	close(s.asked)
	<-s.goOn
	return s.Backend.TryAcquire(context.Background(), r)
}

func TestDeathWaitsForAcquiresInFlight(t *testing.T) {
	s := &slow{asked: make(chan struct{}), goOn: make(chan struct{})}
	f := newFixture(t, func(b driver.Backend) driver.Backend {
		s.Backend = b
		return s
	})
	ended := make(chan error, 1)
	go func() {
		_, err := f.TryAcquire(t.Context(), req("a", "1"))
		ended <- err
	}()
	<-s.asked
	f.refuse()
	var left atomic.Int64
	released := make(chan struct{})
	go func() {
		defer close(released)
		ctx, cancel := context.WithTimeout(context.Background(), releaseBudget)
		defer cancel()
		left.Store(int64(f.releaseAll(ctx)))
	}()
	close(s.goOn)
	<-released
	if err := <-ended; err == nil {
		t.Log("the acquire was granted before it was withdrawn")
	}
	if h := f.holder(t, "a"); h.Held() || left.Load() != 0 {
		t.Errorf("%d left, the lock is %+v", left.Load(), h)
	}
}

// broken is a backend whose next calls of Release fail. Their number is in the field failures.
type broken struct {
	bare
	failures atomic.Int64
}

func (b *broken) Release(ctx context.Context, r driver.Request) error {
	if b.failures.Add(-1) >= 0 {
		return driver.ErrUnavailable
	}
	return b.bare.Release(ctx, r)
}

func TestDeathTriesAgain(t *testing.T) {
	b := &broken{}
	f := newFixture(t, func(inner driver.Backend) driver.Backend {
		b.bare = bare{inner}
		return b
	})
	f.grant(t, req("a", "1"))
	b.failures.Store(3)
	f.die(t)
	if h := f.holder(t, "a"); h.Held() {
		t.Errorf("the lock is %+v", h)
	}
	// If the store stays down, releaseAll must return when its ctx ends.
	f = newFixture(t, func(inner driver.Backend) driver.Backend {
		b.bare = bare{inner}
		return b
	})
	f.grant(t, req("a", "1"))
	b.failures.Store(1 << 40)
	f.refuse()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if left := f.releaseAll(ctx); left != 1 {
		t.Errorf("%d left, want 1", left)
	}
}

func TestTrackerForgetsWhatExpired(t *testing.T) {
	f := newFixture(t, same)
	f.sweepAt = 2
	for i := range 2 {
		f.entries[fmt.Sprint("old", i)] = &entry{until: time.Now().Add(-time.Hour)}
	}
	f.grant(t, req("a", "1"))
	if len(f.entries) != 1 {
		t.Errorf("%d entries", len(f.entries))
	}
}
