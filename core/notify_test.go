package core

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// notified makes another owner hold the lock "a" in the store f for the duration d, while a client
// waits. It returns the time from the release to the client's grant, and the number of acquires.
func notified(t *testing.T, f *fake, d time.Duration) (late time.Duration, asked int) {
	t.Helper()
	c, _ := open(t, f)
	l := lockOf(t, c, "a", nil)
	f.mu.Lock()
	token, _ := f.take(driver.Request{Name: "a", Owner: "stranger", TTL: time.Minute})
	f.mu.Unlock()
	var freed time.Time
	time.AfterFunc(d, func() {
		freed = time.Now()
		if err := f.Release(context.Background(), driver.Request{Name: "a", Owner: "stranger", Token: token}); err != nil {
			t.Error(err)
		}
	})
	lease := acquire(t, l)
	late = time.Since(freed)
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return late, f.count("acquire")
}

// TestNotifier covers a store without a queue. A waiter must call TryAcquire once a second and when
// Notify reports a release, and must not miss a release that comes before Notify has subscribed.
func TestNotifier(t *testing.T) {
	for held, most := range map[time.Duration]int{10500 * time.Millisecond: 14, time.Millisecond: 4} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(driver.CapNotifier)
			f.before = func(_ context.Context, op string, _ driver.Request) error {
				if op == "notify" {
					time.Sleep(2 * time.Millisecond)
				}
				return nil
			}
			if late, asked := notified(t, f, held); late > time.Millisecond || asked > most {
				t.Errorf("held for %v: acquired %v late after %d questions, want at most 1ms and %d", held, late, asked, most)
			}
		})
	}
}

// TestNotifierThatFails checks that a waiter polls while Notify fails, and calls Notify again.
func TestNotifierThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, failing := newFake(driver.CapNotifier), time.Now().Add(5*time.Second)
		f.before = func(_ context.Context, op string, _ driver.Request) error {
			if op == "notify" && time.Now().Before(failing) {
				return fmt.Errorf("%w: the subscription is lost", driver.ErrUnavailable)
			}
			return nil
		}
		late, asked := notified(t, f, 20500*time.Millisecond)
		if late != 0 || asked < 20 || asked > 90 {
			t.Errorf("acquired %v late after %d questions, want at once and 20 to 90", late, asked)
		}
	})
}
