// Package measure has the scenarios, which put a load on a backend and measure it.
//
// # Where is what
//
//   - measure.go defines scenarios and their input, starts host processes, and counts the round
//     trips that an operation waits for.
//   - acquire.go, throughput.go, contend.go, footprint.go and ttl.go define one scenario each.
//   - takeover.go makes leaders fail. election.go runs the candidates, and computes the figures of
//     takeovers.
package measure
