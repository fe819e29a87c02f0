//go:build !race

package plugintest

// Race is whether the race detector watches this test.
const Race = false
