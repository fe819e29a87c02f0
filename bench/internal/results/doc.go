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
//   - folder.go: writes a folder; manifest.go: run.json; results.go: results.txt
//   - events.go: attempts; attempt.go: one attempt, and the names of cells
//   - histograms.go, quantiles.go: latencies; figures.go: the list of figures
//   - round.go: records of faults
//   - estimate.go: the statistics; comparison.go, gate.go: comparison of two builds
//   - merge.go: merging the parts of one load; machineload.go: other work on the machine
package results
