// Command lockbench measures distributed locks and checks in the same run that they are safe. It
// also tests plugins for conformance.
//
// # Where is what
//
//   - main.go: has the root command; exit.go: has exit codes and hints
//   - run.go, faults.go, check.go, report.go, compare.go, merge.go, conform.go, env.go, lock.go,
//     locks.go, exec.go, plugins.go: have one command each; oldfaults.go: reads old flags of run
//   - servers.go, output.go: have the flags of several commands; progress.go: shows progress
//   - complete.go: completes words in a shell; man.go: writes manual pages
package main
