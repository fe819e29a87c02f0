package backendtest

import (
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
)

// Far is the round trip time in tests of distant stores.
const Far = 400 * time.Millisecond

// FarWaiters lets four owners wait for one lock of the backend b. A round trip to b's store takes
// [Far]. When a lease ends, the store must grant the lock to the next owner, and tell the owner in
// time for a renewal. The function sleep returns when the given number of owners wait.
func FarWaiters(t drivertest.T, b driver.Backend, name string, sleep func(waiters int)) {
	t.Helper()
	holder := Acquire(t, b, Request(name, "holder"))
	const waiters = 4
	type told struct {
		i int
		g driver.Grant
	}
	grants := make(chan told, waiters)
	rs := make([]driver.Request, waiters)
	for i := range rs {
		rs[i] = Request(name, fmt.Sprint("waiter-", i))
		go func() {
			for t.Context().Err() == nil {
				if g, err := driver.WaiterOf(b).Wait(t.Context(), rs[i], Timeout); err == nil && g.Token != 0 {
					grants <- told{i, g}
					return
				}
			}
		}()
		sleep(i + 1)
	}
	for i := range rs {
		Must(t, b.Release(t.Context(), holder))
		select {
		case got := <-grants:
			if left := time.Until(got.g.Sent.Add(got.g.For)); got.i != i || got.g.Token <= holder.Token || left < Far {
				t.Errorf("grant %d is waiter %d's, with token %d after %d and %v left of %v", i, got.i, got.g.Token, holder.Token, left, got.g.For)
			}
			holder = rs[got.i]
			holder.Token = got.g.Token
			Must(t, b.Renew(t.Context(), holder))
		case <-time.After(Timeout):
			t.Fatalf("no grant after the release of %s", holder.Owner)
		}
	}
}
