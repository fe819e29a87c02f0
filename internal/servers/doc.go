// Package servers starts, breaks and queries the servers that backends are measured and tested
// against. Code for only one kind of store is in a package below this one. Package kinds lists
// these packages.
//
// A local server is a child process on a free loopback port with a temporary directory. Server and
// directory are removed when the server is closed, or when the process that started it ends in any
// way. For this purpose, each server and each project of containers has a watcher, a small child
// process that notices when the pipe from its parent closes. Test files of any package may use this
// package. The error for a server that is not installed wraps [ErrNotInstalled].
//
// # Where is what
//
//   - kind.go: says what lockbench knows of a store, and what operators do to its servers
//   - stranger.go: starts, by a command, the server of a store that lockbench does not know
//   - environment.go: has the servers of a backend, and the proxies by which hosts reach them
//   - sql.go: has what operations on all SQL servers have in common
//   - server.go: runs a local server; process.go: runs its process
//   - programs.go: finds a server's program, and skips or fails a test if there is none
//   - compose.go: starts servers in containers
package servers
