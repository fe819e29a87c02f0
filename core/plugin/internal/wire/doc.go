// Package wire is protocol version 1 as both ends speak it, which version 2
// builds on: the handshake, the table of errors, the calls of the host and the
// service of the plugin.
package wire
