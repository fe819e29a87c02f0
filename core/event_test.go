package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func TestDroppedEventsAreToldAndEndsAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBlocker()
		c := New(newFake(), &Options{Logger: slog.New(g), OnEvent: g.on})
		defer c.Close(t.Context())
		var leases []*Lease
		for i := range 100 {
			leases = append(leases, acquire(t, lockOf(t, c, fmt.Sprint("early ", i), nil)))
		}
		const cycles = maxEvents
		l := lockOf(t, c, "a", nil)
		for range cycles {
			if err := acquire(t, l).Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range leases {
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		close(g.shut)
		synctest.Wait()
		acquire(t, l) // the EventAcquired of this lease is the first event that is not dropped
		synctest.Wait()

		open := map[string]bool{}
		var told, dropped, logged uint64
		for _, ev := range g.seen() {
			told, dropped = told+1, dropped+ev.Dropped
			switch ev.Kind {
			case EventAcquired:
				open[ev.Owner] = true
			case EventReleased:
				if strings.HasPrefix(ev.Name, "early") && !open[ev.Owner] {
					t.Errorf("%q was released before it was acquired", ev.Name)
				}
				delete(open, ev.Owner)
			}
		}
		for _, r := range g.lines {
			r.Attrs(func(a slog.Attr) bool {
				if a.Key == "dropped" {
					logged += a.Value.Uint64()
				}
				return true
			})
		}
		// The events are EventOpened, two for each lease, and the event of the last acquire.
		if all := uint64(1 + 2*100 + 2*cycles + 1); dropped == 0 || told+dropped != all || logged != dropped {
			t.Errorf("%d events told, %d dropped, %d by the log; want %d in all", told, dropped, logged, all)
		}
		if len(open) != 1 {
			t.Errorf("%d leases were acquired and never ended, want the one that is held", len(open))
		}
	})
}

func TestEventsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := open(t, newFake())
		l := lockOf(t, c, "a", nil)
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for range 50 {
					if err := acquire(t, l).Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		synctest.Wait()
		var token uint64
		for _, ev := range rec.events {
			if ev.Kind != EventAcquired {
				continue
			}
			if ev.Token <= token {
				t.Fatalf("token %d was told after %d", ev.Token, token)
			}
			token = ev.Token
		}
	})
}

func TestLevelMayChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var level slog.LevelVar
		level.Set(slog.LevelWarn)
		var out strings.Builder
		c := New(newFake(), &Options{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: &level}))})
		lease := acquire(t, lockOf(t, c, "a", nil))
		level.Set(slog.LevelDebug)
		time.Sleep(2 * levelEvery)
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if !strings.Contains(out.String(), "msg=released") || strings.Contains(out.String(), "msg=acquired") {
			t.Errorf("the log is %q", out.String())
		}
	})
}

// TestUnreachableStoreIsLogged checks that an Acquire logs one warning while the store is down.
func TestUnreachableStoreIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, out := newFake(), strings.Builder{}
		f.before = func(context.Context, string, driver.Request) error { return driver.ErrUnavailable }
		c := New(f, &Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := lockOf(t, c, "a", nil).Acquire(ctx)
		_ = c.Close(t.Context())
		if err == nil || strings.Count(out.String(), "level=WARN msg=waiting") != 1 {
			t.Errorf("%v; the log is %q", err, out.String())
		}
	})
}

type valueKey struct{}

func TestEventsCarryTheContextOfTheirOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, rec := open(t, f)
		with := func(value string) (context.Context, context.CancelFunc) {
			return context.WithCancel(context.WithValue(t.Context(), valueKey{}, value))
		}
		l := lockOf(t, c, "a", &LockOptions{TTL: 3 * time.Second})
		ctx, cancel := with("first")
		lease, err := l.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(1500 * time.Millisecond)
		ctx, cancel = with("try")
		if _, err := l.TryAcquire(ctx); !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
		cancel()
		ctx, cancel = with("second")
		next := make(chan *Lease)
		go func() {
			lease, err := l.Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			next <- lease
		}()
		synctest.Wait()
		released, done := with("released")
		if err := lease.Release(released); err != nil {
			t.Fatal(err)
		}
		done()
		lease = <-next
		cancel()
		synctest.Wait() // the lease that was handed over is renewed at once
		f.forget("a")
		<-lease.Done()
		synctest.Wait()

		var got []string
		for _, ev := range rec.events {
			if ev.Context.Err() != nil || ev.Context.Done() != nil {
				t.Errorf("the context of %v ends", ev.Kind)
			}
			got = append(got, fmt.Sprint(ev.Kind, " ", ev.Context.Value(valueKey{})))
		}
		want := []string{
			"opened <nil>", "acquired first", "renewed first", "acquire failed try", "waiting second",
			"released released", "acquired second", "renewed second", "lost second",
		}
		if !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		if lease.ctx != nil {
			t.Error("a lease that has ended keeps the caller's context")
		}
	})
}
