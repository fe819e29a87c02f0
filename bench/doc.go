// Package bench plans a run and carries it out: servers, plugins, scenarios,
// one result folder.
//
// # Where is what
//
//   - plan.go: Plan; run.go: Run; names.go: what its flags take by name
//   - targets.go, plugins.go: where servers and plugins are; strangers.go: servers that a
//     command starts
//   - session.go: what is open during a run; environment.go: its servers; subject.go: a backend
//     or a baseline; failures.go: one that fails; machine.go: the machine
//   - parts.go: a run on several machines
//   - outcome.go: what a plan came to, and how it is written
//   - faults.go: the table of faults; search.go: schedules, drawn or played again
//   - folders.go: result folders; keep.go: env up
//   - locks.go, conform.go, skeleton.go: what operators and authors ask
//   - lock.go: a command under a lock; exec.go: the small init
package bench
