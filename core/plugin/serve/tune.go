package serve

import (
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"sync"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// Settings of the Go runtime that a plugin starts with, unless GOMAXPROCS or
// GOGC say otherwise; a host hands both on to its plugins.
const (
	maxThreads  = 4
	ballastSize = 16 << 20
)

// ballast is memory that is never used, and so never resident. The garbage
// collector counts it as live.
var ballast []byte

// tune makes the runtime fit a process that passes messages on.
//
// A plugin waits for its host and for its store, and computes little. With
// several threads the runtime wakes a second one whenever a goroutine
// becomes ready. That thread finds nothing to do and takes the processor
// from host or store. On two processors one thread about halved the context
// switches of a plugin, and took a third off its processor time at 64
// clients. So the plugin takes half of the processors, at most maxThreads.
//
// A plugin's live memory is some MB at most; nearly all of the rest is
// garbage after a request. With ballast a collection comes after some 16 MiB
// of garbage instead of 4. That is a quarter as often, took a fifth off the
// processor time at 64 clients, and costs up to 16 MiB.
//
// Note: a GOGC of 400 does the same as long as little memory is live. After an outage
// under 2,000 leases 17 MB were live, and the plugin grew to 180 MB (decision plugin-24).
func tune() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(max(runtime.GOMAXPROCS(0)/2, 1), maxThreads))
	}
	if os.Getenv("GOGC") == "" {
		ballast = make([]byte, ballastSize)
		runtime.KeepAlive(ballast) // reads ballast, as no other code does
	}
}

// startProfiles begins the CPU profile and the trace that the environment
// asks for. stop ends them, once.
func startProfiles(log *slog.Logger) (stop func()) {
	var stops []func()
	begin := func(variable string, start func(*os.File) error, stop func()) {
		path := os.Getenv(variable)
		if path == "" {
			return
		}
		f, err := os.Create(path)
		if err == nil {
			err = start(f)
		}
		if err != nil {
			log.Warn("no profile", "variable", variable, "err", err)
			return
		}
		stops = append(stops, func() {
			stop()
			f.Close()
		})
	}
	begin(wire.EnvCPUProfile, func(f *os.File) error { return pprof.StartCPUProfile(f) }, pprof.StopCPUProfile)
	begin(wire.EnvTrace, func(f *os.File) error { return trace.Start(f) }, trace.Stop)
	return sync.OnceFunc(func() {
		for _, stop := range stops {
			stop()
		}
	})
}
