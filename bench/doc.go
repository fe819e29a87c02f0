// Package bench plans a run, starts its servers and plugins, measures its
// scenarios, and writes one result folder.
//
// # Where is what
//
//   - plan.go defines Plan and lists the words that flags accept, and run.go carries out a plan.
//   - targets.go reads the flags about servers, and registers stores that lockbench does not know.
//   - plugins.go finds and describes plugins.
//   - session.go opens and closes all that a run uses.
//   - environment.go starts servers, and keeps them running between runs.
//   - subject.go opens a backend or a baseline, and records failed measurements.
//   - machine.go describes the machine, and parts.go lets several machines measure together.
//   - outcome.go writes the result of a command as text or JSON, and reads result folders.
//   - faults.go plays a table of faults. search.go plays random and recorded schedules of faults.
//   - locks.go implements commands for operators, and authors.go those for plugin authors.
//   - lock.go runs a command under a lock, or a program whose children it reaps.
package bench
