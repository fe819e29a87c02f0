// Package bench plans a run, starts its servers and plugins, measures its
// scenarios, and writes one result folder.
//
// # Where is what
//
//   - plan.go: Plan; run.go: Run; names.go: the names that flags take
//   - targets.go, plugins.go: where servers and plugins are; strangers.go: servers that the user's
//     command starts
//   - session.go: what is open during a run; environment.go: its servers; subject.go: a backend
//     or a baseline; failures.go: failed backends; machine.go: the machine
//   - parts.go: a run on several machines
//   - outcome.go: the result of a command, and its output as text or JSON
//   - faults.go: the table of faults; search.go: random and replayed schedules of faults
//   - folders.go: result folders; keep.go: servers that stay up between runs
//   - locks.go, conform.go, skeleton.go: commands for operators and plugin authors
//   - lock.go: a command under a lock; exec.go: a program and its orphaned processes
package bench
