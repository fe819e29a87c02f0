// Package measure has the scenarios. Each is a way to put a load on a backend and measure it.
//
// # Where is what
//
//   - measure.go: scenarios and their input; host processes
//   - acquire.go, throughput.go, contend.go, footprint.go, ttl.go: a scenario each
//   - trips.go: the round trips that operations wait for
//   - takeover.go: the ways to harm a leader; election.go: the candidates;
//     takeoverfigures.go: the figures of takeovers
package measure
