// Package plugintest runs backends in three ways for the conformance suite:
// through the wire protocol inside this process, as a real plugin process,
// and under a second host process that can be killed.
//
// # Where is what
//
//   - loopback.go: a backend through the wire protocol, in this process
//   - binary.go: harnesses for a binary; build.go: builds a binary, and has the body of a TestMain
//   - host.go: a second host for the suite, and processes that are killed or frozen
//   - hostprocess.go: commands to the second host; hoststate.go: that host's own process
//   - server.go: a store whose server runs as a process
//   - race_on.go, race_off.go: whether the race detector is on
package plugintest
