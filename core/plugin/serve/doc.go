// Package serve turns a backend into a plugin: a main function that calls
// [Main] is all that an author writes. The package gives the process its
// handshake, its protocol, its command line, and its behaviour when the host
// dies: what that host held is released at once.
//
// # Where is what
//
//   - serve.go: Main, and the line that a host reads first
//   - inherited.go, privileges_linux.go, privileges_other.go: what a plugin must not inherit
//   - tune.go: the Go runtime, and profiles of it
//   - cli.go: commands without a host
//   - process.go: the plugin process: configuration, end, and what the host's death begins
//   - framed.go: the same in protocol version 2
//   - tracker.go: what the host holds; release.go: its release when the host is dead
//   - lifeline.go, pidfd_linux.go, pidfd_other.go: that the host is dead, or out of reach for good
//   - log.go: the log, and which values must not be in it
package serve
