// Package config has what every backend of a server needs before its first request: keys
// that are declared once, files with passwords and certificates, and what an error
// says when no server of its kind answers.
//
// # Where is what
//
//   - connect.go: the keys of a backend, made of the tags of the struct that its library
//     takes as options; [Connect] has those that all need, so that a key means the same
//     everywhere
//   - source.go: certificates, authorities and passwords, which are renewed more often
//     than the processes that use them, read again for each connection ([Source])
//   - unanswered.go: why a connection came to nothing
package config
