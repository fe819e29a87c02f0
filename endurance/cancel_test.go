package endurance_test

import (
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// TestRandomCancels is the suite's case of acquires that are cancelled at
// random moments, through the plugin, ten thousand times.
func TestRandomCancels(t *testing.T) {
	each(t, func(t *testing.T, w system, binary string, cfg driver.Config) {
		cancels := count(500, 10_000)
		drivertest.Run(t, func(ct drivertest.T) *drivertest.Harness {
			h := plugintest.Binary(binary, func(drivertest.T) driver.Config { return cfg })(ct)
			h.Cancels = cancels
			h.Leftovers = func(drivertest.T) []string { return w.left(t, cfg) }
			return h
		}, "K3 acquires cancelled at random leave nothing and block nobody")
		t.Logf("%d cancels", cancels)
	})
}
