package explore

import (
	"testing"

	"github.com/lockbench/lockbench/bench/witness"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func TestMain(m *testing.M) {
	witness.Main()
	plugintest.Main(m)
}
