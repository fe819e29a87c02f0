// Package node_test holds the plugin in JavaScript to the contract. It speaks
// version 1 of the protocol alone, so it is also the test that hosts go on to
// use plugins of that version.
package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// few are cases that say the most in the least time.
var few = []string{
	"K2 a refused try leaves nothing behind", "K2 try decides once and says who holds", "K3 a withdrawn owner is refused",
	"K6 names are kept as they are and never collide", "L6 tokens rise over release", "L7 release compares the token",
}

// TestConformance needs node and the packages in package.json: make servers
// installs them where npm can.
func TestConformance(t *testing.T) {
	if _, err := os.Stat("node_modules"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("LOCKBENCH_REQUIRE"), ","), "node") {
			t.Fatal("LOCKBENCH_REQUIRE names node, and its packages are missing: npm install")
		}
		t.Skip("node_modules is missing: npm install")
	}
	only := few
	if os.Getenv("LOCKBENCH_LONG") == "1" {
		only = nil
	}
	path, err := filepath.Abs("lockplugin-node")
	if err != nil {
		t.Fatal(err)
	}
	drivertest.Run(t, plugintest.BinaryWith(path, plugin.Options{NoMTLS: true}), only...)
}
