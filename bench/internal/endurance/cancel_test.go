package endurance_test

import (
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// TestRandomCancels checks that acquires cancelled at random leave nothing and block no client.
func TestRandomCancels(t *testing.T) {
	each(t, 2, func(t *testing.T, s *system) {
		cancels := count(500, 10_000)
		drivertest.Run(t, func(ct drivertest.T) *drivertest.Harness {
			h := plugintest.Binary(s.binary, func(drivertest.T) driver.Config { return s.config })(ct)
			h.Cancels = cancels
			h.Leftovers = func(drivertest.T) []string { return s.left(t) }
			return h
		}, "K3 acquires cancelled at random leave nothing and block no client")
		t.Logf("%d cancels", cancels)
	})
}

// left returns the locks that still have a holder or a waiter after 20 s. In that time, all
// requests end, and servers that have missed requests catch up.
func (s *system) left(t *testing.T) (left []string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var err error
		if left, err = s.Leftovers(t.Context(), "jobs"); err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
	}
	return left
}
