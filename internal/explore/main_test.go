package explore

import (
	"testing"

	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/recorder"
)

func TestMain(m *testing.M) {
	recorder.Main()
	plugintest.Main(m)
}
