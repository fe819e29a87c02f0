// Package bench plans a run, starts its servers and plugins, measures its
// scenarios, and writes one result folder.
//
// # Where is what
//
//   - plan.go defines Plan, run.go carries it out, and names.go lists the words that flags accept.
//   - targets.go reads the flags about servers, and plugins.go finds and describes plugins.
//   - strangers.go runs the user's commands to start stores that lockbench does not know.
//   - session.go opens and closes all that a run uses, and environment.go starts its servers.
//   - subject.go opens a backend or a baseline, and failures.go records failed measurements.
//   - machine.go describes the machine, and parts.go lets several machines measure together.
//   - outcome.go writes the result of a command as text or JSON.
//   - faults.go plays a table of faults. search.go plays random and recorded schedules of faults.
//   - folders.go reads result folders, and keep.go keeps servers running between runs.
//   - locks.go, conform.go and skeleton.go implement commands for operators and plugin authors.
//   - lock.go runs a command under a lock, and exec.go runs a program and reaps its children.
package bench
