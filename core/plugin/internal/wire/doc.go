// Package wire implements both ends of protocol version 1: the handshake,
// the table of errors, the calls of the host and the service of the plugin.
// Protocol version 2 uses all of these too.
//
// # Where is what
//
//   - handshake.go: versions and environment variables; certificate.go: key pairs for mutual TLS
//   - link.go, stream.go: the host's end; server.go, serverstream.go: the plugin's end
//   - unconfigured.go: the backend of a plugin that was not yet configured
//   - convert.go, errors.go: messages for the types and errors of package driver
//   - describe.go: the description that a plugin prints; redact.go: removing secrets from texts
package wire
