//go:build race

package plugintest

// Race reports whether this binary was built with the race detector.
const Race = true
