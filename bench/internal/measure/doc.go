// Package measure has the scenarios, which put a load on a backend and measure it.
//
// # Where is what
//
//   - measure.go defines scenarios and their input, and starts host processes.
//   - acquire.go, throughput.go, contend.go, footprint.go and ttl.go define one scenario each.
//   - trips.go counts the round trips that an operation waits for.
//   - takeover.go makes leaders fail, election.go runs the candidates, and
//     takeoverfigures.go computes the figures of takeovers.
package measure
