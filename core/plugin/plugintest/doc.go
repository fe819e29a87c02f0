// Package plugintest runs backends as the conformance suite wants them: behind
// the wire in process, as a real plugin process, and under a second host
// process that can be killed.
//
// # Where is what
//
//   - loopback.go: a backend behind the wire, in process
//   - binary.go: a plugin binary; build.go: made of a package, and the body of a TestMain
//   - host.go: a second host for the suite; hostprocess.go: its process as it is asked,
//     hostmain.go, hoststate.go: as it answers
//   - server.go: a store that is a process; process.go: processes that are killed or frozen
//   - race_on.go, race_off.go: whether the race detector watches
package plugintest
