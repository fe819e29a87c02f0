package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/plugins/memory"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// The tests run in parallel, because most cases spend most of their time waiting.
func TestConformance(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	for name, mk := range map[string]func(drivertest.T) *drivertest.Harness{
		"library": func(drivertest.T) *drivertest.Harness {
			store := memory.NewStore()
			return &drivertest.Harness{
				Open:      func(drivertest.T) driver.Backend { return store.Open() },
				InProcess: true,
			}
		},
		"plugin": plugintest.Binary(plugintest.Build(t, "./lockplugin-memory"), nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, mk)
		})
	}
}
