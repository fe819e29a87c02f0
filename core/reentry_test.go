package core

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// reentries returns one function for each method that acquires the lock l with a ctx.
func reentries(t *testing.T, c *Client, l *Lock) map[string]func(context.Context) error {
	e, err := c.Elector(l.Name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	fn := func(context.Context, *Lease) error { t.Error("it was granted"); return nil }
	return map[string]func(context.Context) error{
		"Acquire":    func(ctx context.Context) error { _, err := l.Acquire(ctx); return err },
		"TryAcquire": func(ctx context.Context) error { _, err := l.TryAcquire(ctx); return err },
		"Do":         func(ctx context.Context) error { return l.Do(ctx, fn) },
		"TryDo":      func(ctx context.Context) error { return l.TryDo(ctx, fn) },
		"Campaign":   func(ctx context.Context) error { _, err := e.Campaign(ctx); return err },
		"Run":        func(ctx context.Context) error { return e.Run(ctx, func(*Term) { t.Error("it leads") }) },
	}
}

func TestReentryIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		c, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		refused := func(ctx context.Context) {
			t.Helper()
			before, asked := time.Now(), f.count("acquire")
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			for how, again := range reentries(t, c, l) {
				var held *HeldError
				if err := again(child); !errors.Is(err, ErrReentrant) || !errors.As(err, &held) {
					t.Errorf("%s: %v", how, err)
				}
			}
			if time.Since(before) != 0 || f.count("acquire") != asked {
				t.Errorf("refused after %v and %d questions", time.Since(before), f.count("acquire")-asked)
			}
		}
		under := func(ctx context.Context, _ *Lease) error { refused(ctx); return nil }
		for _, do := range []func(context.Context, func(context.Context, *Lease) error) error{
			l.Do, l.TryDo,
			func(ctx context.Context, fn func(context.Context, *Lease) error) error { // holding another lock
				return l.Do(ctx, func(ctx context.Context, _ *Lease) error { return lockOf(t, c, "b", nil).Do(ctx, fn) })
			},
		} {
			if err := do(t.Context(), under); err != nil {
				t.Error(err)
			}
		}
		lease := acquire(t, l)
		ctx, cancel := lease.Context(t.Context())
		refused(ctx)
		cancel()
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		e, err := c.Elector("a", nil)
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		refused(term.Context())
		if err := term.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An acquire of another name, through another client, or with a ctx that outlives the lease can
// succeed later. So it must not fail with ErrReentrant.
func TestOtherLocksAreNoReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		c, _ := open(t, f)
		there, _ := open(t, f)
		l, elsewhere := lockOf(t, c, "a", nil), lockOf(t, there, "a", nil)
		later := make(chan *Lease, 2)
		err := l.Do(t.Context(), func(ctx context.Context, _ *Lease) error {
			if err := lockOf(t, c, "b", nil).Do(ctx, func(context.Context, *Lease) error { return nil }); err != nil {
				t.Error(err)
			}
			if _, err := elsewhere.TryAcquire(ctx); errors.Is(err, ErrReentrant) {
				t.Error(err)
			}
			for range 2 {
				go func() {
					lease, err := l.Acquire(context.WithoutCancel(ctx))
					if err != nil {
						t.Error(err)
					}
					later <- lease
				}()
			}
			synctest.Wait()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := (<-later).Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
