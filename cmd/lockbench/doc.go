// Command lockbench measures distributed locks and checks in the same run that they are safe. It
// also tests plugins for conformance.
//
// # Where is what
//
//   - main.go: has the root command, exit codes and hints
//   - run.go: measures and injects faults; oldfaults.go: reads old flags of run
//   - folders.go: has the commands on result folders; env.go: has those on servers that stay up
//   - lock.go: runs programs, most under a lock; locks.go: shows and breaks locks
//   - plugins.go: has the commands for authors of plugins
//   - flags.go: has what several commands share; progress.go: shows progress
//   - complete.go: completes words in a shell, and writes manual pages
package main
