// Command lockbench measures distributed locks and checks in the same run that they are safe. It
// also tests plugins for conformance.
//
// # Where is what
//
//   - main.go: the root command; exit.go: exit codes and hints
//   - one command each: run.go, faults.go, check.go, report.go, compare.go, merge.go, conform.go,
//     env.go, lock.go, locks.go, exec.go, plugins.go; oldfaults.go: old flags of run
//   - servers.go, output.go: flags that several commands share; progress.go: a run's progress
//   - complete.go: completion in a shell; man.go: manual pages
package main
