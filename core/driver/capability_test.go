package driver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// slow waits for 3 s, and takes 1 s to grant.
type slow struct {
	driver.Backend
	waitErr error
	asked   int
	budget  time.Duration // of the acquire
}

func (*slow) Properties() driver.Properties {
	return driver.Properties{Capabilities: []driver.Capability{driver.CapWaiter}}
}

func (s *slow) Wait(ctx context.Context, _ driver.Request, _ time.Duration) (driver.Grant, error) {
	select {
	case <-time.After(3 * time.Second):
		return driver.Grant{}, s.waitErr
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	}
}

func (s *slow) TryAcquire(ctx context.Context, _ driver.Request) (uint64, error) {
	s.asked++
	end, _ := ctx.Deadline()
	s.budget = time.Until(end)
	time.Sleep(time.Second)
	return 7, nil
}

// The lease's time is counted from when the acquire was sent, so a wait that is
// said to have been longer than it was would make two holders.
func TestWaitAcquireSaysHowLongItWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		token, waited, _, err := driver.WaitAcquirerOf(s).WaitAcquire(t.Context(), driver.Request{TTL: 2 * time.Second}, time.Minute)
		if token != 7 || waited != 3*time.Second || err != nil {
			t.Errorf("token %d after a wait of %v, %v", token, waited, err)
		}
		if s.budget != 2*time.Second {
			t.Errorf("the acquire of a TTL of 2s got %v", s.budget)
		}
	})
}

// An error of the wait leaves no doubt that nothing was granted.
func TestWaitAcquireThatWaitsInVain(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails error
		after time.Duration
		want  []error
	}{
		{"the store is down", driver.ErrUnavailable, time.Minute, []error{driver.ErrUnavailable, driver.ErrNotSent}},
		{"refused", driver.ErrDenied, time.Minute, []error{driver.ErrDenied, driver.ErrNotSent}},
		{"ctx ends", nil, time.Second, []error{context.DeadlineExceeded, driver.ErrUnavailable, driver.ErrNotSent}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slow{waitErr: tc.fails}
				ctx, cancel := context.WithTimeout(t.Context(), tc.after)
				defer cancel()
				_, _, _, err := driver.WaitAcquirerOf(s).WaitAcquire(ctx, driver.Request{TTL: time.Second}, time.Minute)
				for _, want := range tc.want {
					if !errors.Is(err, want) {
						t.Errorf("%v is no %v", err, want)
					}
				}
				if s.asked != 0 {
					t.Error("it has asked for the lock")
				}
			})
		})
	}
}

// A wait that hangs must neither hold up the waiter nor pass for an acquire.
func TestWaitAcquireEndsAWaitThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{} // waits for 3 s, whatever it is told
		began := time.Now()
		_, _, _, err := driver.WaitAcquirerOf(s).WaitAcquire(t.Context(), driver.Request{TTL: time.Second}, time.Second)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if !errors.Is(err, driver.ErrNotSent) || s.asked != 0 {
			t.Errorf("asked %d times: %v", s.asked, err)
		}
	})
}
