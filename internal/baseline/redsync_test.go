package baseline

import (
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

func TestBaselinesOnNodes(t *testing.T) {
	nodes, err := redisserver.StartNodes(t.Context(), 5, &redisserver.Options{Password: "hush"})
	servers.Keep(t, "redis", nodes, err)
	plugin := plugintest.Build(t, "../../plugins/redlock/lockplugin-redlock")
	if err := servers.Init(t.Context(), plugin, "password=hush", "address="+nodes.Addr()); err != nil {
		t.Fatal(err)
	}
	cfg := driver.Config{"address": nodes.Addr(), "password": "hush", "node_timeout": "300ms"} // of a busy machine
	for _, bl := range All() {
		if bl.Backend == "redlock" {
			t.Run(bl.Name, func(t *testing.T) { testExclusion(t, bl, cfg, cfg) })
		}
	}
}
