package serve

import (
	"os"
	"runtime"
	"runtime/debug"
)

// Settings of the Go runtime that a plugin starts with, unless GOMAXPROCS or
// GOGC say otherwise; a host hands both on to its plugins.
const (
	maxThreads = 4
	gcPercent  = 400
)

// tune makes the runtime fit a process that passes messages on.
//
// A plugin waits for its host and for its store, and computes little. With
// several threads the runtime wakes a second one whenever a goroutine becomes
// ready, which finds nothing to do and takes the processor from host or store:
// on two processors one thread about halved the context switches of a plugin,
// and took a third off its processor time at 64 clients. So it takes half of the
// processors, at most maxThreads.
//
// What is live in a plugin is a few hundred bytes for each held lease; all the
// rest is garbage after a request. Collecting it a quarter as often took a
// fifth off the processor time at 64 clients and costs up to 16 MiB.
func tune() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(max(runtime.GOMAXPROCS(0)/2, 1), maxThreads))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
