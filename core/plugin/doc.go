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
//   - plugin.go: Options and Open
//   - find.go: where the binary is; describe.go: what it says of itself
//   - safe.go, checksum.go, privileges_linux.go, privileges_other.go: which binary is refused
//   - launch.go: from a binary to a process that serves; errors.go: why it does not
//   - runner.go: starts the process; env.go: its environment; pipes.go: its first line
//   - group_linux.go, group_other.go: ends it with all that it has started; wrapper.go: the
//     plugin behind a wrapper; socketdir.go: the directory of its sockets
//   - process.go: a process that serves, and its end; heartbeat.go: one that is frozen
//   - backend.go: the driver.Backend that calls it; notices.go: what watchers are told
//   - supervise.go: the process is replaced
//   - log.go: what the plugin logs; applog.go: the application's logger, which may block
package plugin
