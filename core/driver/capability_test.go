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
	grant   driver.Grant  // of the wait
	age     time.Duration // of the sign of life before it
	asked   int
	budget  time.Duration // of the acquire
}

func (*slow) Properties() driver.Properties {
	return driver.Properties{Capabilities: []driver.Capability{driver.CapWaiter}}
}

func (s *slow) Wait(ctx context.Context, _ driver.Request, _ time.Duration) (driver.Grant, error) {
	select {
	case <-time.After(3 * time.Second):
		if s.grant.Token != 0 {
			s.grant.Sent = time.Now().Add(-s.age)
		}
		return s.grant, s.waitErr
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

// A grant that the wait has brought is asked for when little of it is left, or when
// the lock must stay taken for a while. One whose caller is gone is told of: there
// is something to withdraw.
func TestWaitAcquireTakesTheStoresGrant(t *testing.T) {
	const span = 500 * time.Millisecond
	for _, tc := range []struct {
		name      string
		age, keep time.Duration
		gone      bool
		asked     int
	}{
		{name: "new", age: 240 * time.Millisecond},
		{name: "old", age: 250 * time.Millisecond, asked: 1},
		{name: "kept", keep: time.Millisecond, asked: 1},
		{name: "gone", age: time.Minute, gone: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slow{grant: driver.Grant{Token: 9, For: span}, age: tc.age}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var b driver.Backend = s
				if tc.gone {
					b = leaves{s, cancel}
				}
				r := driver.Request{TTL: 2 * time.Second, Keep: tc.keep}
				token, waited, lasts, err := driver.WaitAcquirerOf(b).WaitAcquire(ctx, r, time.Minute)
				want, wantWaited, wantFor := uint64(9), 3*time.Second-tc.age, span
				if tc.asked > 0 {
					want, wantWaited, wantFor = 7, 3*time.Second, 0
				}
				if token != want || waited != wantWaited || lasts != wantFor || err != nil || s.asked != tc.asked {
					t.Errorf("token %d after %v, for %v, asked %d times, %v", token, waited, lasts, s.asked, err)
				}
			})
		})
	}
}

// leaves is slow, and its caller is gone when it has waited.
type leaves struct {
	*slow
	leave func()
}

func (l leaves) Wait(ctx context.Context, r driver.Request, most time.Duration) (driver.Grant, error) {
	g, err := l.slow.Wait(ctx, r, most)
	l.leave()
	return g, err
}
