// Package wire implements both ends of protocol version 1: the handshake, the table of errors, the
// calls of the host and the service of the plugin. Protocol version 2 uses all of these too.
//
// # Where is what
//
//   - handshake.go has versions and environment variables. certificate.go makes TLS keys.
//   - link.go and stream.go are the host's end. server.go and serverstream.go are the plugin's end.
//   - convert.go and errors.go convert values and errors of package driver to messages and back.
//   - describe.go describes a plugin. redact.go removes secrets from texts.
package wire
