package plugin_test

import (
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/plugins/memory"
)

// The whole suite through the wire, in process.
func TestConformLoopback(t *testing.T) {
	t.Parallel()
	for name, loopback := range map[string]func(drivertest.T, driver.Backend) driver.Backend{
		"unary": plugintest.UnaryLoopback, "framed": plugintest.Loopback,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, func(drivertest.T) *drivertest.Harness {
				store := memory.NewStore()
				return &drivertest.Harness{
					Open:      func(t drivertest.T) driver.Backend { return loopback(t, store.Open()) },
					InProcess: true,
				}
			})
		})
	}
}

// The whole suite with real plugin and host processes, on a store that
// outlives them. The store itself cannot be stopped: backends with a server of
// their own are there for that.
func TestConformProcess(t *testing.T) {
	t.Parallel()
	err := drivertest.Conform(t.Context(), func(t drivertest.T) *drivertest.Harness {
		store := newStore(t)
		return plugintest.Binary(link(t, "far"), func(drivertest.T) driver.Config { return store.config() })(t)
	}, func(rule drivertest.RuleResult) {
		for _, c := range rule.Cases {
			noStore := c.Outcome == drivertest.NotRun && strings.Contains(c.Reason, "Harness.Store")
			if c.Outcome == drivertest.Fail || c.Outcome == drivertest.NotRun && !noStore {
				t.Errorf("%s: %v %s\n%s", c.Case.Name, c.Outcome, c.Reason, c.Log)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
