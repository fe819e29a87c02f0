package cas_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/cas"
)

var errLost = errors.New("lost on the way")

func request(owner string) driver.Request {
	return driver.Request{Name: "jobs", Owner: owner, TTL: 10 * time.Second}
}

// TestLostMessages loses requests and replies at random. Two owners must never hold the lock at
// once, tokens must rise, and a withdrawn owner must not get the lock.
func TestLostMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &data{}
		var inside, owners atomic.Int32
		var last atomic.Uint64
		var work sync.WaitGroup
		lossy := func(string, string) error {
			time.Sleep(time.Duration(rand.Int64N(int64(time.Millisecond))))
			if rand.IntN(5) == 0 {
				return errLost
			}
			return nil
		}
		for range 8 {
			b := cas.New(&client{data: d, before: lossy, after: lossy}, claims, time.Second)
			work.Go(func() {
				for range 200 {
					turn(t, b, fmt.Sprint("owner", owners.Add(1)), &inside, &last)
				}
			})
		}
		work.Wait()
		if h, err := cas.New(&client{data: d}, claims, time.Second).Inspect(t.Context(), "jobs"); h.Held() || err != nil {
			t.Errorf("after the last release: %+v, %v", h, err)
		}
		if last.Load() == 0 {
			t.Error("nothing was granted")
		}
	})
}

// turn tries once to acquire, renew and release the lock, with the given owner id.
func turn(t *testing.T, b driver.Backend, owner string, inside *atomic.Int32, last *atomic.Uint64) {
	ctx, r := t.Context(), request(owner)
	token, err := b.TryAcquire(ctx, r)
	switch {
	case err == nil:
	case errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrNotSent):
		return
	case errors.Is(err, driver.ErrUnavailable):
		for b.Withdraw(ctx, r.Name, owner) != nil {
		}
		if token, err := b.TryAcquire(ctx, r); !errors.Is(err, driver.ErrWithdrawn) && !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("TryAcquire by the withdrawn %s: token %d, %v", owner, token, err)
		}
		return
	default:
		t.Errorf("TryAcquire by %s: %v", owner, err)
	}
	if n := inside.Add(1); n != 1 {
		t.Errorf("%d hold the lock, %s with token %d among them", n, owner, token)
	}
	if before := last.Swap(token); before >= token {
		t.Errorf("token %d follows %d", token, before)
	}
	r.Token = token
	for err = errLost; err != nil; err = b.Renew(ctx, r) {
		if errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Renew of token %d: %v", token, err)
			break
		}
	}
	inside.Add(-1)
	for err = errLost; err != nil && !errors.Is(err, driver.ErrNotHeld); err = b.Release(ctx, r) {
	}
}

// An acquire must fail if its Put is delayed until the owner has been withdrawn.
func TestLateAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &data{}
		other := cas.New(&client{data: d}, claims, time.Second)
		late := cas.New(&client{data: d, before: func(op, _ string) error {
			if op == "put" {
				time.Sleep(time.Minute)
			}
			return nil
		}}, claims, time.Second)
		go func() {
			time.Sleep(time.Second)
			if err := other.Withdraw(t.Context(), "jobs", "late"); err != nil {
				t.Errorf("Withdraw: %v", err)
			}
		}()
		if token, err := late.TryAcquire(t.Context(), request("late")); !errors.Is(err, driver.ErrWithdrawn) {
			t.Errorf("a TryAcquire whose Put took a minute: token %d, %v", token, err)
		}
		if h, err := other.Inspect(t.Context(), "jobs"); h.Held() || err != nil {
			t.Errorf("the withdrawn owner holds the lock: %+v, %v", h, err)
		}
	})
}

// A renewal that is delayed until the lease has expired must not revive the lease.
func TestLateRenewal(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent=%t", silent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &data{silent: silent, timeless: true}
				slow := &client{data: d}
				b, other := cas.New(slow, claims, time.Second), cas.New(&client{data: d}, claims, time.Second)
				r := request("slow")
				r.TTL = time.Second
				var err error
				if r.Token, err = b.TryAcquire(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				slow.before = func(op, _ string) error {
					if op == "put" {
						slow.before = nil
						time.Sleep(time.Second + claims.TTLStep)
					}
					return nil
				}
				r.TTL = 10 * time.Second
				if err := b.Renew(t.Context(), r); !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("Renew that took longer than the lease lived: %v", err)
				}
				if h, err := other.Inspect(t.Context(), r.Name); h.Held() || err != nil {
					t.Errorf("the lease was brought back: %+v, %v", h, err)
				}
				if _, err := other.TryAcquire(t.Context(), request("next")); err != nil {
					t.Errorf("TryAcquire after the lease's end: %v", err)
				}
			})
		})
	}
}

// After a renewal in time, another client writes the record later than the lease's former end. This
// write must not end the lease, although a renewal at the time of this write would be too late.
func TestRepeatedRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &data{}
		b, other := cas.New(&client{data: d}, claims, time.Second), cas.New(&client{data: d}, claims, time.Second)
		r := request("holder")
		var err error
		if r.Token, err = b.TryAcquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(r.TTL / 2)
			if err := b.Renew(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			time.Sleep(r.TTL * 2 / 5)
			if err := other.Withdraw(t.Context(), r.Name, "other"); err != nil {
				t.Fatal(err)
			}
			if h, err := other.Inspect(t.Context(), r.Name); h.Token != r.Token || h.TTL != r.TTL*3/5 || err != nil {
				t.Errorf("after a renewal and a withdrawal of another owner: %+v, %v", h, err)
			}

		}
	})
}

// A call of Notify that begins while Close runs must not leave a watch behind.
func TestCloseEndsWatches(t *testing.T) {
	for range 2000 {
		d := &data{}
		b := cas.New(watched{&client{data: d}}, claims, time.Second)
		var work sync.WaitGroup
		work.Go(func() { _ = driver.NotifierOf(b).Notify(t.Context(), "jobs", func() {}) })
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		work.Wait()
		if len(d.watches) > 0 {
			t.Fatal("a watch is left")
		}
	}
}

// Package cas must not overwrite a value that is not a lock's record.
func TestNoRecord(t *testing.T) {
	d := &data{}
	c := &client{data: d}
	b := cas.New(c, claims, time.Second)
	r := request("owner")
	if _, err := b.TryAcquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for key, e := range d.entries {
		e.Value = []byte("something else")
		d.entries[key] = e
	}
	if err := b.Withdraw(t.Context(), r.Name, r.Owner); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Withdraw from a key with another value: %v", err)
	}
	err := driver.AdminOf(b).List(t.Context(), "", func(driver.Holder) bool { return true })
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("List with such a key: %v", err)
	}
}
