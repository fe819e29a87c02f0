//go:build race

package etcd

// raceEnabled reports whether timings say nothing.
const raceEnabled = true
