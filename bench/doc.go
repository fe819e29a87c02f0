// Package bench plans a run, starts its servers and plugins, measures its
// scenarios, and writes one result folder.
//
// # Where is what
//
//   - plan.go: Plan; run.go: Run; names.go: the names that flags take
//   - targets.go, plugins.go: where servers and plugins are; strangers.go: servers that a
//     command starts
//   - session.go: what is open during a run; environment.go: its servers; subject.go: a backend
//     or a baseline; failures.go: failed backends; machine.go: the machine
//   - parts.go: a run on several machines
//   - outcome.go: the result of a plan, and its writing
//   - faults.go: the table of faults; search.go: schedules, drawn or replayed
//   - folders.go: result folders; keep.go: env up
//   - locks.go, conform.go, skeleton.go: commands for operators and plugin authors
//   - lock.go: a command under a lock; exec.go: the small init
package bench
