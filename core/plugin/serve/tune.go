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

// The environment variables GOMAXPROCS and GOGC override these settings. A host passes both
// variables on to its plugins.
const (
	maxThreads  = 4
	ballastSize = 16 << 20
)

// ballast is never written, so it takes no physical memory, but the garbage collector counts it as
// live memory.
var ballast []byte

// tune sets the runtime up for a process that mostly forwards messages.
//
// A plugin waits for its host and for its store, and computes little. With several threads, the
// runtime wakes a second thread whenever a goroutine becomes ready. The second thread usually
// finds no work, and takes a CPU from the host or the store. On a machine with two CPUs,
// GOMAXPROCS=1 instead of 2 about halved a plugin's context switches, and cut its CPU time at
// 64 clients by a third. So GOMAXPROCS of a plugin is half of the CPUs, but at most maxThreads.
//
// A plugin's live memory is a few MB at most. Nearly all other memory is garbage after
// a request. With the ballast, a garbage collection starts after about 16 MiB of garbage
// instead of 4 MiB, so collections are four times rarer. At 64 clients, this cut the
// plugin's CPU time by a fifth. The price is up to 16 MiB of memory for the garbage.
//
// Note: GOGC=400 has the same effect while little memory is live. But after an outage with 2,000
// leases, 17 MB were live, and with GOGC=400 the plugin grew to 180 MB (decision plugin-24).
func tune() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(max(runtime.GOMAXPROCS(0)/2, 1), maxThreads))
	}
	if os.Getenv("GOGC") == "" {
		ballast = make([]byte, ballastSize)
		runtime.KeepAlive(ballast) // so that ballast stays live, although no code reads it
	}
}

// startProfiles starts a CPU profile and an execution trace, each only if its environment variable
// names a file.
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
