// Package plugintest runs backends for the conformance suite in three ways: through the wire
// protocol inside this process, as a real plugin process, and under a second host process that can
// be killed.
//
// # Where is what
//
//   - loopback.go runs a backend through the wire protocol, in this process.
//   - binary.go makes harnesses for a plugin binary. build.go builds the binary.
//   - host.go gives the suite a second host. hoststate.go runs in that host's process.
//   - server.go runs a store's server as a process.
//   - race_on.go and race_off.go say whether the race detector is on.
package plugintest
