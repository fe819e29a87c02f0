package explore

import (
	"testing"

	"github.com/lockbench/lockbench/bench/recorder"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func TestMain(m *testing.M) {
	recorder.Main()
	plugintest.Main(m)
}
