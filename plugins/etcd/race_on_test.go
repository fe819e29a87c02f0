//go:build race

package etcd

// raceEnabled tells that timings say nothing.
const raceEnabled = true
