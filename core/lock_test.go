package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func TestK6Names(t *testing.T) {
	f := newFake(driver.CapAdmin)
	c, _ := open(t, f)
	for _, name := range []string{"", strings.Repeat("x", 513), strings.Repeat("x", 64<<10), "a\xff", "a\xc3", "\xed\xa0\x80"} {
		_, err := c.Lock(name, nil)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("name of %d bytes: %v", len(name), err)
		}
		if len(fmt.Sprint(err)) > 300 {
			t.Errorf("the error for a name of %d bytes has %d", len(name), len(fmt.Sprint(err)))
		}
		if _, err := c.Inspect(t.Context(), name); !errors.Is(err, ErrInvalid) {
			t.Errorf("inspect: name of %d bytes: %v", len(name), err)
		}
		if _, err := c.Elector(name, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("elector: name of %d bytes: %v", len(name), err)
		}
		if err := c.Break(t.Context(), name, 1); !errors.Is(err, ErrInvalid) {
			t.Errorf("break: name of %d bytes: %v", len(name), err)
		}
	}
	if len(f.calls) != 0 {
		t.Errorf("something was sent: %v", f.calls)
	}
	for _, name := range []string{"a", strings.Repeat("x", 512), "a\x00b{c}/é\U0001F512\n"} {
		if l, err := c.Lock(name, nil); err != nil || l.Name() != name {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestK7Options(t *testing.T) {
	f := newFake()
	c, _ := open(t, f)
	cases := []struct {
		opts LockOptions
		want string
	}{
		{LockOptions{TTL: -1}, "TTL -1ns does not fit fake: minimum 10ms, step 1ms, maximum 1h0m0s"},
		{LockOptions{TTL: 1}, "TTL 1ns does not fit"},
		{LockOptions{TTL: 10*time.Millisecond + 1}, "step 1ms"},
		{LockOptions{TTL: 87600 * time.Hour}, "maximum 1h0m0s"},
		{LockOptions{TTL: 6 * time.Second, RenewEvery: 4 * time.Second}, "RenewEvery 4s is not less than half of TTL 6s"},
		{LockOptions{RenewEvery: -time.Second}, "RenewEvery -1s is negative"},
		{LockOptions{AtLeast: 11 * time.Second}, "AtLeast 11s is not between 0 and TTL 10s"},
		{LockOptions{MaxHold: -1}, "MaxHold -1ns is negative"},
		{LockOptions{MaxHold: time.Second, AtLeast: 2 * time.Second}, "MaxHold 1s is less than AtLeast 2s"},
		{LockOptions{Value: make([]byte, 65537)}, "value has 65537 bytes, allowed are 65536"},
	}
	for _, tc := range cases {
		_, err := c.Lock("a", &tc.opts)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.opts, err, tc.want)
		}
	}
	f.props.TTLMin = time.Minute
	if _, err := c.Lock("a", nil); err == nil || !strings.Contains(err.Error(), "the default TTL 10s does not fit") {
		t.Errorf("default below the minimum: %v", err)
	}
	if len(f.calls) != 0 {
		t.Errorf("something was sent: %v", f.calls)
	}
}

func TestErrorsNameWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		f.steal("jobs/refresh")
		l := lockOf(t, c, "jobs/refresh", nil)
		_, err := l.TryAcquire(t.Context())
		var held *HeldError
		if !errors.As(err, &held) || held.Holder.Label != "stranger:1" || !errors.Is(err, ErrHeld) {
			t.Fatalf("TryAcquire: %v", err)
		}
		want := `acquire "jobs/refresh" on fake: lock is held by stranger:1 for another 1m0s`
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Acquire(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stranger:1") {
			t.Errorf("Acquire: %v", err)
		}
	})
}

func TestK1PermanentErrorEndsAcquire(t *testing.T) {
	for _, permanent := range []error{ErrInvalid, ErrDenied, ErrConfig, ErrUnsupported, ErrClosed} {
		f := newFake()
		f.before = func(context.Context, string, driver.Request) error { return fmt.Errorf("no: %w", permanent) }
		c, _ := open(t, f)
		_, err := lockOf(t, c, "a", nil).Acquire(t.Context())
		if !errors.Is(err, permanent) || f.count("acquire") != 1 {
			t.Errorf("%v after %d tries: %v", permanent, f.count("acquire"), err)
		}
	}
}

func TestK2TryAcquireAsksOnceAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWaiter)
		c, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		lease := acquire(t, l)
		if _, err := l.TryAcquire(t.Context()); !errors.Is(err, ErrHeld) {
			t.Errorf("second of one host: %v", err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.count("acquire") != 2 || f.count("wait") != 0 || f.count("withdraw") != 0 || len(c.queues.shard("a").names) != 0 {
			t.Errorf("calls %v, queues %v", f.calls, c.queues.shard("a").names)
		}
	})
}

func TestK4AsksAgainWhenTheHolderExpires(t *testing.T) {
	for _, capabilities := range [][]driver.Capability{nil, {driver.CapWaiter}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(capabilities...)
			c, rec := open(t, f)
			f.steal("a")
			expires := time.Now().Add(700 * time.Millisecond)
			f.expire("a", expires)
			lease := acquire(t, lockOf(t, c, "a", nil))
			if late := time.Since(expires); late > 2*time.Millisecond {
				t.Errorf("capabilities %v: granted %v after the expiry", capabilities, late)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
			rec.want(t, "a", EventWaiting, EventAcquired, EventReleased)
		})
	}
}

func TestK8AcquireOutlastsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var down atomic.Bool
		down.Store(true)
		f.before = func(context.Context, string, driver.Request) error {
			if down.Load() {
				return errDown
			}
			return nil
		}
		c, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		time.AfterFunc(time.Hour, func() { down.Store(false) })
		lease := acquire(t, l)
		if !lease.Valid() || f.owner("a") != lease.Owner() {
			t.Errorf("valid %v, in the store %q", lease.Valid(), f.owner("a"))
		}
		if n := f.count("acquire") + f.count("withdraw"); n > 4*3600 {
			t.Errorf("%d calls in an hour of outage", n)
		}
	})
}

func TestK8TryAcquireFailsFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(context.Context, string, driver.Request) error {
			return fmt.Errorf("%w: %w: plugin is starting", ErrUnavailable, driver.ErrNotSent)
		}
		c, _ := open(t, f)
		began := time.Now()
		_, err := lockOf(t, c, "a", nil).TryAcquire(t.Context())
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrIndeterminate) || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if _, err := c.Inspect(t.Context(), "a"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Inspect: %v", err)
		}
		f.hook(nil, nil)
		if _, err := lockOf(t, c, "a", nil).TryAcquire(t.Context()); err != nil {
			t.Errorf("with the store back: %v", err)
		}
	})
}

func TestDoRunsUnderTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		failed := errors.New("failed")
		err := l.Do(t.Context(), func(ctx context.Context, lease *Lease) error {
			if f.owner("a") != lease.Owner() {
				t.Error("fn runs without the lock")
			}
			if err := l.TryDo(ctx, func(context.Context, *Lease) error { return nil }); !errors.Is(err, ErrHeld) {
				t.Errorf("TryDo of a held lock: %v", err)
			}
			return failed
		})
		if err != failed || f.owner("a") != "" {
			t.Errorf("Do: %v, held by %q", err, f.owner("a"))
		}
		err = l.Do(t.Context(), func(ctx context.Context, _ *Lease) error {
			f.steal("a")
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, ErrTaken) || !errors.Is(err, context.Canceled) || f.count("release") != 1 {
			t.Errorf("Do over a loss: %v, %d releases", err, f.count("release"))
		}
	})
}

func TestDoTellsWorkFromRelease(t *testing.T) {
	failed := errors.New("failed")
	for name, down := range map[string]error{
		"unknown": errDown, "not sent": fmt.Errorf("%w (%w)", ErrUnavailable, driver.ErrNotSent), "refused": ErrDenied,
	} {
		for _, work := range []error{nil, failed} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c, _ := open(t, f)
				err := lockOf(t, c, "a", nil).Do(t.Context(), func(context.Context, *Lease) error {
					f.hook(func(context.Context, string, driver.Request) error { return down }, nil)
					return work
				})
				if errors.Is(err, ErrUnreleased) != (work == nil) || work != nil && !errors.Is(err, work) || !errors.Is(err, down) ||
					errors.Is(err, ErrIndeterminate) != (name == "unknown") {
					t.Errorf("release %s, work %v: %v", name, work, err)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		err := lockOf(t, c, "a", nil).Do(t.Context(), func(context.Context, *Lease) error {
			f.forget("a") // the lock is free, so Do must not say that it may still be taken
			return nil
		})
		if !errors.Is(err, ErrNotHeld) || errors.Is(err, ErrUnreleased) {
			t.Errorf("the lock was lost meanwhile: %v", err)
		}
	})
}

// TryAcquire and TryDo take no longer than their doc comments say.
func TestK2TryOfASilentStoreIsBounded(t *testing.T) {
	for _, tc := range []struct{ ttl, ctx, want time.Duration }{
		{10 * time.Second, time.Hour, 4 * time.Second},
		{time.Second, time.Hour, 2 * time.Second},
		{10 * time.Second, time.Second, 2 * time.Second},
	} {
		for _, waiters := range []int{0, 1} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(waiting...)
				c, _ := open(t, f)
				l := lockOf(t, c, "a", &LockOptions{TTL: tc.ttl})
				f.steal("a")
				wctx, stop := context.WithCancel(t.Context())
				defer stop()
				for range waiters {
					go func() { _, _ = l.Acquire(wctx) }()
				}
				synctest.Wait()
				f.hook(func(ctx context.Context, _ string, _ driver.Request) error {
					<-ctx.Done()
					return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
				}, nil)
				ctx, cancel := context.WithTimeout(t.Context(), tc.ctx)
				defer cancel()
				began := time.Now()
				err := l.TryDo(ctx, func(context.Context, *Lease) error { return nil })
				if took := time.Since(began); took > tc.want+grace+2*tick || !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("TTL %v, ctx %v, %d waiters: %v after %v", tc.ttl, tc.ctx, waiters, err, took)
				}
			})
		}
	}
}

func TestDoReleasesWhenFnPanics(t *testing.T) {
	f := newFake()
	c, _ := open(t, f)
	l := lockOf(t, c, "a", nil)
	defer func() {
		if recover() != "boom" || f.owner("a") != "" {
			t.Errorf("held by %q after a panic", f.owner("a"))
		}
	}()
	_ = l.Do(t.Context(), func(context.Context, *Lease) error { panic("boom") })
}

func TestAtLeastKeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWaiter)
		c, _ := open(t, f)
		start := time.Now()
		l := lockOf(t, c, "tick", &LockOptions{TTL: 10 * time.Second, AtLeast: 2 * time.Second})
		lease := acquire(t, l)
		next := make(chan time.Duration)
		go func() {
			second := acquire(t, l)
			next <- time.Since(start)
			_ = second.Release(context.Background())
		}()
		time.Sleep(500 * time.Millisecond)
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-next; got < 2*time.Second || got > 2010*time.Millisecond {
			t.Errorf("the next grant came after %v, want 2s", got)
		}
	})
}

// TestK8RefusalAfterServiceIsAnOutage checks that a client that the store has served waits until a
// refusal ends, and that no lease is lost before its deadline.
func TestK8RefusalAfterServiceIsAnOutage(t *testing.T) {
	serve := map[string]func(t *testing.T, c *Client, f *fake){
		"a grant": func(t *testing.T, c *Client, _ *fake) {
			if err := acquire(t, lockOf(t, c, "b", nil)).Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"a lock that is held": func(t *testing.T, c *Client, f *fake) {
			f.steal("b")
			if _, err := lockOf(t, c, "b", nil).TryAcquire(t.Context()); !errors.Is(err, ErrHeld) {
				t.Fatal(err)
			}
		},
		"a check": func(t *testing.T, c *Client, _ *fake) {
			if err := c.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, serve := range serve {
		for _, capabilities := range [][]driver.Capability{nil, {driver.CapWaiter}} {
			for _, refusal := range []error{ErrDenied, ErrConfig} {
				synctest.Test(t, func(t *testing.T) {
					f := newFake(capabilities...)
					c, rec := open(t, f)
					serve(t, c, f)
					f.steal("a")
					f.expire("a", time.Now().Add(2*time.Second))
					led, granted := make(chan struct{}), make(chan error, 1)
					ctx := t.Context()
					running, stop := context.WithCancel(ctx)
					go func() {
						lease, err := lockOf(t, c, "a", nil).Acquire(ctx)
						if err == nil {
							err = lease.Release(ctx)
						}
						granted <- err
					}()
					go func() {
						_ = electorOf(t, c, "e", nil).Run(running, func(*Term) { close(led); stop() })
					}()
					f.steal("e")
					f.expire("e", time.Now().Add(2*time.Second))
					synctest.Wait()
					f.away(5*time.Second, fmt.Errorf("no: %w", refusal))
					time.Sleep(4 * time.Second)
					if _, err := lockOf(t, c, "other", nil).TryAcquire(ctx); !errors.Is(err, refusal) {
						t.Errorf("after %s: TryAcquire: %v", name, err)
					}
					if err := c.Check(ctx); !errors.Is(err, refusal) {
						t.Errorf("after %s: Check: %v", name, err)
					}
					if ev := rec.last(t, "a"); ev.Kind != EventWaiting || !errors.Is(ev.Err, refusal) {
						t.Errorf("after %s: last event %v, %v", name, ev.Kind, ev.Err)
					}
					if err := <-granted; err != nil {
						t.Errorf("after %s: Acquire: %v", name, err)
					}
					<-led
					rec.want(t, "a", EventWaiting, EventWaiting, EventAcquired, EventReleased)
				})
			}
		}
	}
}

// TestK8RefusedRenewalIsTriedUntilTheDeadline checks that a lease with a TTL of 10 s survives if
// renewals are refused for 8 s, and is lost at its deadline if the refusals go on.
func TestK8RefusedRenewalIsTriedUntilTheDeadline(t *testing.T) {
	for _, ends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			c, rec := open(t, f)
			lease := acquire(t, lockOf(t, c, "a", nil))
			long := time.Hour
			if ends {
				long = 8 * time.Second
			}
			f.away(long, ErrDenied)
			time.Sleep(8*time.Second + 600*time.Millisecond)
			if !lease.Valid() {
				t.Errorf("lost before its deadline: %v", lease.Err())
			}
			if ev := rec.last(t, "a"); !ends && (ev.Kind != EventSuspect || !errors.Is(ev.Err, ErrDenied)) {
				t.Errorf("last event %v, %v", ev.Kind, ev.Err)
			}
			time.Sleep(10 * time.Second)
			if lease.Valid() != ends || !ends && CauseName(lease.Err()) != "unreachable" {
				t.Errorf("refusal ends %v: valid %v, cause %v", ends, lease.Valid(), lease.Err())
			}
		})
	}
}
