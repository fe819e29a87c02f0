// Package host runs hosts as operating system processes: each wants or holds
// locks through a plugin of its own, and can be killed or frozen from outside.
//
// A process is the running binary started again, whose main (or TestMain) must
// call plugintest.HostMain first.
package host

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/lockbench/lockbench/bench/fault"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// Spec says through which plugin a host takes its locks.
type Spec struct {
	Backend string
	Path    string // of the plugin binary
	Config  driver.Config
	NoMTLS  bool
}

// Process is a host process. It does one command at a time; harming it is
// possible at any time.
type Process struct{ p *plugintest.HostProcess }

// Start starts a host and returns when its plugin is open.
func Start(ctx context.Context, s Spec) (*Process, error) {
	p, err := plugintest.StartHost(ctx, plugintest.HostSpec{Plugin: s.Backend, Path: s.Path, Config: s.Config, NoMTLS: s.NoMTLS})
	if err != nil {
		return nil, err
	}
	return &Process{p}, nil
}

// Pid is the process id of the host, not of its plugin.
func (p *Process) Pid() int { return p.p.Pid() }

// Acquire waits up to timeout for the lock, and returns the token of the
// grant.
func (p *Process) Acquire(ctx context.Context, name string, ttl, timeout time.Duration) (uint64, error) {
	return p.p.Acquire(ctx, name, ttl, timeout, 0)
}

// State tells what the host's lease says: Valid, and the cause of its end.
func (p *Process) State(ctx context.Context, name string) (valid bool, cause string, err error) {
	valid, _, cause, err = p.p.State(ctx, name)
	return valid, cause, err
}

// Release releases the host's lease.
func (p *Process) Release(ctx context.Context, name string) error { return p.p.Release(ctx, name) }

// Kill ends the host with SIGKILL and returns when it is gone. Its plugin is
// not touched.
func (p *Process) Kill() error {
	err := fault.Kill(p.p.Pid())
	if reaped := p.p.Kill(); err == nil && !errors.Is(reaped, os.ErrProcessDone) {
		err = reaped
	}
	return err
}

// Freeze stops the host with SIGSTOP and returns when it has stopped. Its
// plugin goes on.
func (p *Process) Freeze() error {
	return errors.Join(p.p.Freeze(), fault.Freeze(p.p.Pid()))
}

// Resume lets a frozen host go on.
func (p *Process) Resume() error {
	return errors.Join(p.p.Resume(), fault.Resume(p.p.Pid()))
}

// Close lets the host release its leases and end. It is killed when it has not
// ended before ctx does.
func (p *Process) Close(ctx context.Context) error { return p.p.Close(ctx) }
