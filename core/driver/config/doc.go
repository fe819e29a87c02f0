// Package config has what every backend with a server needs before its first request:
// configuration keys, files with passwords and certificates, and the errors for an
// address at which no server of the right kind answers.
//
// # Where is what
//
//   - connect.go: the keys of a backend, made from the tags of its Options struct;
//     [Connect] has the common keys, so that a key has the same meaning in every
//     backend
//   - source.go: certificates, authorities and passwords, read again for each
//     connection because they may be renewed while the process runs ([Source])
//   - unanswered.go: errors for a connection that failed
package config
