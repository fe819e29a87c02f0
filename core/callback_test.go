package core

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// callbacks has a function for each method that runs a callback, and two functions that nest such
// methods. Each function makes client c run fn under the lock "jobs".
var callbacks = map[string]func(t *testing.T, c *Client, fn func(ctx context.Context, valid func() bool)) error{
	"Do": func(t *testing.T, c *Client, fn func(context.Context, func() bool)) error {
		return lockOf(t, c, "jobs", nil).Do(context.Background(), func(ctx context.Context, l *Lease) error {
			fn(ctx, l.Valid)
			return nil
		})
	},
	"TryDo": func(t *testing.T, c *Client, fn func(context.Context, func() bool)) error {
		return lockOf(t, c, "jobs", nil).TryDo(context.Background(), func(ctx context.Context, l *Lease) error {
			fn(ctx, l.Valid)
			return nil
		})
	},
	"Do in Do": func(t *testing.T, c *Client, fn func(context.Context, func() bool)) error {
		return lockOf(t, c, "outer", nil).Do(context.Background(), func(ctx context.Context, _ *Lease) error {
			return lockOf(t, c, "jobs", nil).Do(ctx, func(ctx context.Context, l *Lease) error {
				fn(ctx, l.Valid)
				return nil
			})
		})
	},
	"Do in Run": func(t *testing.T, c *Client, fn func(context.Context, func() bool)) error {
		err := electorOf(t, c, "outer", nil).Run(context.Background(), func(term *Term) {
			_ = lockOf(t, c, "jobs", nil).Do(term.Context(), func(ctx context.Context, l *Lease) error {
				fn(ctx, l.Valid)
				return nil
			})
		})
		return unlessClosed(err)
	},
	"Run": func(t *testing.T, c *Client, fn func(context.Context, func() bool)) error {
		err := electorOf(t, c, "jobs", nil).Run(context.Background(), func(term *Term) { fn(term.Context(), term.Valid) })
		return unlessClosed(err)
	},
}

func unlessClosed(err error) error {
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// TestCloseWaitsForCallbacks checks that no other host gets the lock before the callback returns,
// even several TTLs after Close has ended the ctx of the callback.
func TestCloseWaitsForCallbacks(t *testing.T) {
	for name, run := range callbacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c, _ := open(t, f)
				rival, _ := open(t, f)
				working, ended := make(chan struct{}), make(chan error)
				finished := false
				go func() {
					ended <- run(t, c, func(ctx context.Context, valid func() bool) {
						close(working)
						<-ctx.Done()
						if !errors.Is(context.Cause(ctx), ErrClosed) {
							t.Errorf("cause %v", context.Cause(ctx))
						}
						time.Sleep(30 * time.Second) // three TTLs
						if !valid() {
							t.Error("the lease ended under the callback")
						}
						finished = true
					})
				}()
				<-working
				go func() {
					if err := c.Close(context.Background()); err != nil || !finished {
						t.Errorf("Close: %v, callback finished: %v", err, finished)
					}
				}()
				acquire(t, lockOf(t, rival, "jobs", nil))
				if !finished {
					t.Error("another host was granted the lock while the callback still ran")
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestCloseGivesUpOnCallbacks(t *testing.T) {
	for name, run := range callbacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c, _ := open(t, f)
				stuck, ended := make(chan struct{}), make(chan error)
				go func() {
					ended <- run(t, c, func(context.Context, func() bool) { <-stuck })
				}()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				close(stuck)
				err := <-ended
				if f.count("release") != 0 || f.owner("jobs") == "" {
					t.Error("the lock of a callback that still works was released")
				}
				if name != "Run" && name != "Do in Run" && !errors.Is(err, ErrClosed) {
					t.Errorf("%s: %v, want ErrClosed: the lock was given up under the callback", name, err)
				}
			})
		})
	}
}

func TestCloseFromACallbackIsRefused(t *testing.T) {
	f := newFake()
	c, _ := open(t, f)
	other, _ := open(t, newFake())
	err := lockOf(t, c, "a", nil).Do(t.Context(), func(ctx context.Context, l *Lease) error {
		if err := c.Close(ctx); !errors.Is(err, ErrInvalid) || !l.Valid() || ctx.Err() != nil {
			t.Errorf("%v, valid %v, ctx %v", err, l.Valid(), ctx.Err())
		}
		return other.Close(ctx) // for another client, the callback's ctx is an ordinary ctx
	})
	if err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_ = electorOf(t, c, "a", nil).Run(ctx, func(term *Term) {
		defer cancel()
		if err := c.Close(term.Context()); !errors.Is(err, ErrInvalid) || !term.Valid() {
			t.Errorf("%v, valid %v", err, term.Valid())
		}
	})
	if err := c.Check(t.Context()); err != nil {
		t.Errorf("after a Close that was refused: %v", err)
	}
}

// TestCallbackDoesNotStartWhileCloseReleases begins Close after the grant, before the callback.
func TestCallbackDoesNotStartWhileCloseReleases(t *testing.T) {
	c, _ := open(t, newFake())
	lock := lockOf(t, c, "a", nil)
	lease := acquire(t, lock)
	c.closing.Store(true)
	if n := len(c.sched.leaving()); n != 1 {
		t.Fatalf("%d leases to release", n)
	}
	err := lock.run(t.Context(), lease, func(context.Context, *Lease) error {
		t.Error("the callback has started")
		return nil
	})
	if !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
