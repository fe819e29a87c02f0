// Package plugintest runs backends as the conformance suite wants them: behind
// the wire in process, as a real plugin process, and under a second host
// process that can be killed.
//
// # Where is what
//
//   - loopback.go: a backend behind the wire, in process
//   - binary.go: a plugin binary; build.go: made of a package, and the body of a TestMain
//   - host.go: a second host for the suite, and processes that are killed or frozen
//   - hostprocess.go: the host's process as it is asked; hoststate.go: as it answers
//   - server.go: a store that is a process
//   - race_on.go, race_off.go: whether the race detector watches
package plugintest
