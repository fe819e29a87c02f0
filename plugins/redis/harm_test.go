package redis

import (
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

func TestHarmToAWaiter(t *testing.T) {
	s := start(t, nil)
	binary := plugintest.Build(t, "./lockplugin-redis")
	h := plugintest.Binary(binary, func(drivertest.T) driver.Config { return driver.Config{"address": s.Addr()} })(t)
	backendtest.HarmToAWaiter(t, h, connect(t, at(s)))
}
