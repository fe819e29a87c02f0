// Command lockbench measures distributed locks and checks in the same run that they are safe. It
// also tests plugins for conformance.
//
// # Where is what
//
//   - main.go: the root command; exit.go: exit codes and hints
//   - a command each: run.go, faults.go, check.go, report.go, compare.go, merge.go, conform.go,
//     env.go, lock.go, locks.go, exec.go, plugins.go; oldfaults.go: earlier spellings
//   - servers.go, output.go: flags of several commands; progress.go: a run on a terminal
//   - complete.go: completion; man.go: manual pages
package main
