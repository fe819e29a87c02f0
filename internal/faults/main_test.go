package faults

import (
	"testing"

	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/host"
)

func TestMain(m *testing.M) {
	host.Main()
	plugintest.Main(m)
}
