// Package plugin runs a backend as a separate process, behind a [driver.Backend] for the host.
// [Open] finds the binary, starts it, and keeps it running.
//
// A dead plugin is replaced within a fraction of a second, and a frozen plugin is replaced within
// seconds. Watchers get a [driver.NoticeDown] and then a [driver.NoticeUp]. Calls between the two
// notices fail at once. When a host dies, its plugin lives until it has released the host's locks;
// see [Policy].
//
// # Where is what
//
//   - plugin.go: Options, Open and its errors
//   - find.go: finding the binary; describe.go: the description that the binary prints
//   - safe.go, privileges_linux.go, privileges_other.go: which binary is refused
//   - launch.go: starting and configuring the plugin, and errors for a start that failed
//   - runner.go: the process, also behind a wrapper; group_linux.go, group_other.go: ending it
//     with all processes that it started; socketdir.go: the directory of its sockets
//   - process.go: a serving plugin: its heartbeats, how a freeze is detected, and its end
//   - backend.go: the driver.Backend that calls the plugin, and notices to watchers
//   - supervise.go: replacing a plugin that died
//   - log.go: what the plugin prints and logs; applog.go: the application's logger, which may block
package plugin
