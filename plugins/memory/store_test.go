package memory

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// A lease that is never released must use memory only until it has expired.
func TestExpiredNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		b := s.Open()
		const names = 10_000
		for i := range names {
			if _, err := b.TryAcquire(t.Context(), driver.Request{Name: fmt.Sprint(i), Owner: "a", TTL: time.Second}); err != nil {
				t.Fatalf("TryAcquire of name %d: %v", i, err)
			}
			time.Sleep(10 * time.Millisecond) // 100 leases live at a time
		}
		if n := len(s.names); n > 500 {
			t.Errorf("of %d names that were held for a second each the store keeps %d; 100 are held", names, n)
		}
	})
}

func TestWithdrawnOwnersAreForgottenAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		b := s.Open()
		withdraw := func(owner string) {
			t.Helper()
			if err := b.Withdraw(t.Context(), "jobs", owner); err != nil {
				t.Fatalf("withdrawing %s: %v", owner, err)
			}
		}
		for i := range 1000 {
			withdraw(fmt.Sprint(i))
		}
		time.Sleep(tombstoneFor - time.Millisecond)
		if _, err := b.TryAcquire(t.Context(), driver.Request{Name: "jobs", Owner: "0", TTL: time.Second}); !errors.Is(err, driver.ErrWithdrawn) {
			t.Errorf("TryAcquire by an owner that was withdrawn a minute ago: %v; want ErrWithdrawn", err)
		}
		time.Sleep(tombstoneFor + 2*time.Millisecond)
		withdraw("last")
		if s.withdrawn.Len() != 1 || len(s.names) != 0 {
			t.Errorf("%d owners are withdrawn, and %d names are kept; want 1 and 0", s.withdrawn.Len(), len(s.names))
		}
	})
}

func TestTokensRiseOverStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last uint64
		for range 3 {
			b := NewStore().Open()
			for i := range 100 {
				token, err := b.TryAcquire(t.Context(), driver.Request{Name: fmt.Sprint(i), Owner: "a", TTL: time.Second})
				if err != nil || token <= last {
					t.Fatalf("token %d, %v, after token %d", token, err, last)
				}
				last = token
			}
			time.Sleep(time.Millisecond) // a restart takes longer than 1 µs for each of the 100 grants
		}
	})
}
