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

func TestConformance(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	drivertest.Run(t, func(drivertest.T) *drivertest.Harness {
		store := memory.NewStore()
		return &drivertest.Harness{
			Open:      func(drivertest.T) driver.Backend { return store.Open() },
			InProcess: true,
		}
	})
}

func TestConformanceThroughWire(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	drivertest.Run(t, func(drivertest.T) *drivertest.Harness {
		store := memory.NewStore()
		return &drivertest.Harness{
			Open:      func(t drivertest.T) driver.Backend { return plugintest.Loopback(t, store.Open()) },
			InProcess: true,
		}
	})
}

func TestConformanceOfPlugin(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	drivertest.Run(t, plugintest.Binary(plugintest.Build(t, "./lockplugin-memory"), nil))
}
