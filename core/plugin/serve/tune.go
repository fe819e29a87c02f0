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

// Settings of the Go runtime for a plugin. The environment variables
// GOMAXPROCS and GOGC override them; a host passes both on to its plugins.
const (
	maxThreads  = 4
	ballastSize = 16 << 20
)

// ballast is memory that is never written, so it takes no physical memory.
// The garbage collector counts it as live.
var ballast []byte

// tune sets the runtime up for a process that mostly forwards messages.
//
// A plugin waits for its host and for its store, and computes little. With
// several threads, the runtime wakes a second thread whenever a goroutine becomes
// ready. That thread finds nothing to do and takes the processor from the host or
// the store. On a machine with two processors, a single thread about halved the
// context switches of a plugin, and its processor time fell by a third at 64
// clients. So the plugin uses half of the processors, but at most maxThreads.
//
// A plugin's live memory is a few MB at most, and nearly all other memory is
// garbage after a request. With ballast, a garbage collection starts after
// about 16 MiB of garbage instead of 4 MiB: a quarter as often. At 64 clients,
// processor time fell by a fifth. That costs up to 16 MiB of memory.
//
// Note: a GOGC of 400 has the same effect as long as little memory is live. But after an outage
// with 2,000 leases 17 MB were live, and the plugin grew to 180 MB (decision plugin-24).
func tune() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(max(runtime.GOMAXPROCS(0)/2, 1), maxThreads))
	}
	if os.Getenv("GOGC") == "" {
		ballast = make([]byte, ballastSize)
		runtime.KeepAlive(ballast) // so that ballast stays live, although no code reads it
	}
}

// startProfiles starts the CPU profile and the execution trace, each if its
// environment variable is set. stop ends both; only its first call has an effect.
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
