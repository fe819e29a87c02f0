// Package serve turns a backend into a plugin. An author writes only a main function that calls
// [Main]. The package implements the handshake, the protocol and the command line. It also releases
// the host's locks when the host dies.
//
// # Where is what
//
//   - serve.go: Main, and the handshake line that a host reads first
//   - inherited.go, privileges_linux.go, privileges_other.go: what a plugin must not inherit
//   - tune.go: settings of the Go runtime, and profiles
//   - cli.go: the command line, for use without a host
//   - process.go: the plugin process, how it is configured, and how it ends
//   - framed.go: the plugin process in protocol version 2
//   - tracker.go: records the host's leases; release.go: releases them when the host is dead
//   - lifeline.go, pidfd_linux.go, pidfd_other.go: detect a dead or lost host
//   - log.go: the log, and the removal of secrets from it
package serve
