// Package host runs hosts as operating system processes: each wants or holds
// locks through a plugin, or a library, of its own, and can be killed or frozen
// from outside. A [Candidate] campaigns; [Callers] put load on.
//
// A process is the running binary started again, whose main (or TestMain) must
// call [Main] first.
package host

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/proc"
)

// The environment variables that make a binary which calls Main a host.
const (
	roleCallers   = "LOCKBENCH_CALLERS"
	roleCandidate = "LOCKBENCH_CANDIDATE"
)

// Main makes this process a host and ends it, when it was started as one;
// otherwise it does nothing. Call it first in main or TestMain.
func Main() {
	proc.Become(roleCallers, "callers", callersMain)
	proc.Become(roleCandidate, "candidate", candidateMain)
}

const (
	// startTimeout is how long a plugin may take until it is open: many start at
	// once on a machine that has other things to do.
	startTimeout = 30 * time.Second
	// closeBudget bounds the orderly end of a host.
	closeBudget = 4 * time.Second
)

// Spec says through which plugin a host takes its locks.
type Spec struct {
	Backend string
	Path    string // of the plugin binary
	Config  driver.Config
	NoMTLS  bool
}

// quiet drops what the plugin and core of a host log.
var quiet = slog.New(slog.DiscardHandler)

func (s Spec) open(ctx context.Context) (driver.Backend, error) {
	return plugin.Open(ctx, s.Backend, &plugin.Options{Path: s.Path, Config: s.Config, NoMTLS: s.NoMTLS, StartTimeout: startTimeout, Logger: quiet})
}
