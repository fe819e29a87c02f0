// Package wire is protocol version 1 as both ends speak it, and the base of
// version 2: the handshake, the table of errors, the calls of the host and
// the service of the plugin.
//
// # Where is what
//
//   - handshake.go: versions and variables; certificate.go: who is at the other end
//   - link.go, stream.go: the host's end; server.go, serverstream.go: the plugin's
//   - unconfigured.go: the backend of a plugin that was not configured yet
//   - convert.go, errors.go: messages of package driver's types and of its errors
//   - describe.go: what a plugin prints of itself; redact.go: secrets in texts
package wire
