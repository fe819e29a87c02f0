// Package plugin runs a backend in a separate process, the plugin. The application's process, the
// host, uses the plugin through a [driver.Backend]. [Open] starts the plugin and keeps it running.
//
// A dead plugin is replaced within a fraction of a second, and a frozen plugin is replaced within
// seconds. Watchers get a [driver.NoticeDown] when the plugin fails and a [driver.NoticeUp] when a
// new plugin runs. Calls between the two notices fail at once. When a host dies, its plugin lives
// until it has released the host's locks (see [Policy]).
//
// # Where is what
//
//   - plugin.go declares Options, Open and its errors.
//   - find.go finds the binary, and reads the description that it prints.
//   - safe.go, privileges_linux.go and privileges_other.go refuse unsafe binaries.
//   - launch.go starts and configures the plugin, and explains why a start failed.
//   - runner.go runs the process. group_linux.go and group_other.go kill it with its children.
//   - socketdir.go makes the directory of the plugin's sockets.
//   - process.go sends heartbeats to a plugin, detects a freeze, and ends the plugin.
//   - backend.go calls the plugin, and passes notices to watchers.
//   - supervise.go replaces a plugin that died.
//   - log.go logs what the plugin prints.
package plugin
