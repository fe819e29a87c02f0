// Package serve turns a backend into a plugin. The author of a plugin writes only a main function
// that calls [Main]. The package implements the handshake, the protocol and the command line. When
// the host dies, the package releases the host's locks.
//
// # Where is what
//
//   - serve.go has Main, closes inherited files, and writes the handshake line.
//   - privileges_linux.go and privileges_other.go bar new privileges.
//   - tune.go sets up the Go runtime and starts profiles.
//   - cli.go executes the command line, for use without a host.
//   - process.go configures and ends the plugin process, and serves protocol version 2.
//   - tracker.go records the host's leases. release.go releases them when the host is dead.
//   - lifeline.go, pidfd_linux.go and pidfd_other.go detect a dead or lost host.
//   - log.go writes the log and removes secrets from it.
package serve
