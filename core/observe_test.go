package core

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// TestE3ObserversShare checks that 20 observers of a name cost the store as much as one, and that
// each gets the same changes as a single observer.
func TestE3ObserversShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var looks atomic.Int64
		f.before = func(_ context.Context, op string, _ driver.Request) error {
			if op == "inspect" {
				looks.Add(1)
			}
			return nil
		}
		c, _ := open(t, f)
		e := electorOf(t, c, "jobs", &ElectorOptions{Value: []byte("1")})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cost := func() int64 {
			before := looks.Load()
			time.Sleep(10 * time.Second)
			return looks.Load() - before
		}
		var all []<-chan Change
		next := func(kind ChangeKind) {
			t.Helper()
			for i, changes := range all {
				if ch := <-changes; ch.Kind != kind {
					t.Fatalf("observer %d sees %v, want %v", i, ch.Kind, kind)
				}
			}
		}
		all = append(all, e.Observe(ctx))
		next(Vacant)
		one := cost()
		for range 19 {
			all = append(all, e.Observe(ctx))
		}
		for i, changes := range all[1:] {
			if ch := <-changes; ch.Kind != Vacant {
				t.Fatalf("observer %d sees %v at first", i+1, ch.Kind)
			}
		}
		if twenty := cost(); twenty > one+1 || one == 0 {
			t.Errorf("20 observers ask %d times in 10s, one alone %d times", twenty, one)
		}
		idle := e.Observe(ctx) // the channel idle is never read, which must not delay other observers
		term, err := e.Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next(Elected)
		if err := term.Proclaim(ctx, []byte("2")); err != nil {
			t.Fatal(err)
		}
		next(Updated)
		if err := term.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		next(Vacant)
		if ch := <-idle; ch.Kind != Vacant {
			t.Errorf("the newest for one that did not read: %v", ch.Kind)
		}
		cancel()
		for _, changes := range append(all, idle) {
			if ch, open := <-changes; open {
				t.Errorf("%v after ctx ended", ch.Kind)
			}
		}
		synctest.Wait()
		if after := cost(); after != 0 {
			t.Errorf("%d looks that nobody waits for", after)
		}
		if len(c.streams.byName) != 0 {
			t.Error("the stream is kept")
		}
	})
}

// TestE3LostQuestion covers an Inspect that is never answered, for a backend without Observe. The
// observer must report Stale and, later, the next leader.
func TestE3LostQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		e := electorOf(t, c, "jobs", nil)
		changes := e.Observe(t.Context())
		if ch := <-changes; ch.Kind != Vacant {
			t.Fatalf("at first: %v", ch.Kind)
		}
		f.hook(func(ctx context.Context, op string, _ driver.Request) error {
			if op != "inspect" {
				return nil
			}
			<-ctx.Done()
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
		}, nil)
		began := time.Now()
		if ch := <-changes; ch.Kind != Stale || time.Since(began) > 3*time.Second {
			t.Errorf("%v after %v without an answer", ch.Kind, time.Since(began))
		}
		f.hook(nil, nil)
		if _, err := e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		for ch := range changes {
			if ch.Kind == Elected {
				return
			}
		}
		t.Error("the next leader is not seen")
	})
}

// TestE3FirstIsPresent checks that a new observer of a stream first receives the state after its
// call of Observe, and not the last change that earlier observers received.
func TestE3FirstIsPresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		e := electorOf(t, c, "jobs", nil)
		for range e.Observe(t.Context()) {
			break
		}
		for i := range 20 {
			term, err := e.Campaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if ch := <-e.Observe(ctx); ch.Kind != Elected || ch.Leader.Token == 0 {
				t.Errorf("round %d: %v, and somebody leads", i, ch.Kind)
			}
			if err := term.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			if ch := <-e.Observe(ctx); ch.Kind != Vacant {
				t.Errorf("round %d: %v, and nobody leads", i, ch.Kind)
			}
			cancel()
		}
	})
}
