// Package plugin runs a backend as a process of its own and makes it a
// [driver.Backend]: [Open] finds the binary, starts it, and keeps it running.
//
// A plugin that dies or freezes is replaced within a fraction of a second;
// watchers are told ([driver.Watcher], Down and Up), and calls fail at once in
// between. A plugin outlives its host by as long as it takes to release what
// the host held.
package plugin
