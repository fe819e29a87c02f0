// Package measure holds the scenarios, which are the measurements of lockbench.
//
// # Where is what
//
//   - measure.go: what a scenario is, and what it is given; host processes
//   - acquire.go, throughput.go, contend.go, footprint.go, ttl.go: a scenario each
//   - trips.go: the round trips that operations wait for
//   - takeover.go: the ways in which leaders end; election.go: the candidates;
//     takeoverfigures.go: the figures of takeovers
package measure
