package serve

import (
	"log/slog"
	"os"
	"runtime/pprof"
	"runtime/trace"
	"sync"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// startProfiles begins the CPU profile and the trace that the environment asks
// for, and returns what ends them, once.
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
