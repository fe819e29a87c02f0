// Package plugin runs a backend as a process of its own and makes it a
// [driver.Backend]: [Open] finds the binary, starts it, and keeps it running.
//
// A plugin that dies or freezes is replaced within a fraction of a second;
// watchers are told ([driver.Watcher], Down and Up), and calls fail at once in
// between. A plugin outlives its host by as long as it takes to release what
// the host held.
//
// # Where is what
//
//   - plugin.go: Options, Open and its errors
//   - find.go: where the binary is; describe.go: what it says of itself
//   - safe.go, privileges_linux.go, privileges_other.go: which binary is refused
//   - launch.go: from a binary to a process that serves
//   - runner.go: starts the process, behind a wrapper too; group_linux.go, group_other.go: ends
//     it with all that it has started; socketdir.go: the directory of its sockets
//   - process.go: a process that serves, one that is frozen, and its end
//   - backend.go: the driver.Backend that calls it, and what watchers are told
//   - supervise.go: the process is replaced
//   - log.go: what the plugin prints and logs; applog.go: the application's logger, which may block
package plugin
