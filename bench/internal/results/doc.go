// Package results defines the files of a run's result folder, reads and writes them, and computes
// statistics of their figures. Lockbench can compute the verdict and the report again from a folder
// alone, without servers.
//
// A folder holds
//
//	run.json        seed, plan, versions, machine, checksums, state of the run
//	results.txt     one line per cell and run, in the Go benchmark format
//	events.lbe      every attempt to acquire a lock, see [EventWriter]
//	histograms.hlog latencies, in the log format of HdrHistogram
//
// A run replaces run.json and only appends to the other files. An interrupted run therefore keeps
// its measurements.
//
// If a run is repeated, each figure becomes a median with its confidence interval. One run, and not
// one operation, is one sample of the statistics. The operations of one run share the state of the
// machine, so a thousand operations are not independent.
//
// # Where is what
//
//   - folder.go writes a folder, and manifest.go and results.go define run.json and results.txt.
//   - events.go writes and reads attempts. attempt.go defines attempts and the names of cells.
//   - histograms.go and quantiles.go summarize latencies, and figures.go lists all figures.
//   - round.go defines the records of faults.
//   - estimate.go computes statistics, and comparison.go and gate.go compare two builds.
//   - merge.go merges the parts of one load, and machineload.go warns of a busy machine.
package results
