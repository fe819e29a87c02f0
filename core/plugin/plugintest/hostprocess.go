package plugintest

import (
	"context"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/internal/proc"
)

// HostProcess is a second host. It runs this binary in another process, with its own core.Client
// and plugin. It executes one command at a time. Its methods must not be called concurrently. If a
// method's ctx ends before the answer, the process is killed.
type HostProcess struct {
	child   *proc.Child
	replies chan reply

	plugin int // last known process id of that host's plugin
	frozen bool
}

// StartHost starts this binary again as a host process, and returns when the plugin
// of that process is open. The binary's main or TestMain must call [HostMain].
func StartHost(ctx context.Context, spec HostSpec) (*HostProcess, error) {
	h := &HostProcess{child: &proc.Child{Role: role}, replies: make(chan reply, 1)}
	err := proc.Start(ctx, h.child, spec, func(r reply) { h.replies <- r })
	if err == nil {
		_, err = h.PluginPid(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("host process: %w", err)
	}
	return h, nil
}

func (h *HostProcess) ask(ctx context.Context, c command) (reply, error) {
	if err := h.child.Send(c); err != nil {
		return reply{}, err
	}
	select {
	case r := <-h.replies:
		return r, wire.DecodeError(r.Error)
	case <-h.child.Ended():
		return reply{}, proc.ErrEnded
	case <-ctx.Done():
		_ = h.Kill() // because a late reply would be taken for the reply to a later command
		return reply{}, ctx.Err()
	}
}

// Pid returns the id of the host process.
func (h *HostProcess) Pid() int { return h.child.Pid() }

// PluginPid asks the host for the process id of its plugin. The id is 0 while the plugin is down.
// For a frozen host, which cannot answer, PluginPid returns the last known id.
func (h *HostProcess) PluginPid(ctx context.Context) (int, error) {
	if h.frozen {
		return h.plugin, nil
	}
	r, err := h.ask(ctx, command{Op: "plugin"})
	if err == nil {
		h.plugin = r.Pid
	}
	return r.Pid, err
}

// Acquire tries once to acquire the named lock, with the core.LockOptions
// TTL = ttl and AtLeast = atLeast. It returns the lease's token.
func (h *HostProcess) Acquire(ctx context.Context, name string, ttl, atLeast time.Duration) (uint64, error) {
	r, err := h.ask(ctx, command{Op: "acquire", Name: name, TTL: ttl, AtLeast: atLeast})
	return r.Token, err
}

// Enqueue makes the host call Acquire, and returns when this Acquire waits or has got the lock.
func (h *HostProcess) Enqueue(ctx context.Context, name string, ttl, atLeast time.Duration) error {
	_, err := h.ask(ctx, command{Op: "enqueue", Name: name, TTL: ttl, AtLeast: atLeast})
	return err
}

// State describes the host's lease of the named lock. It returns the result of Valid,
// whether Done is closed, and the name of the cause that Err returns; see core.CauseName.
func (h *HostProcess) State(ctx context.Context, name string) (valid, done bool, cause string, err error) {
	r, err := h.ask(ctx, command{Op: "state", Name: name})
	return r.Valid, r.Done, r.Cause, err
}

// Release releases the host's lease of the named lock.
func (h *HostProcess) Release(ctx context.Context, name string) error {
	_, err := h.ask(ctx, command{Op: "release", Name: name})
	return err
}

// Freeze stops the host process with SIGSTOP, and returns when it has stopped. The plugin runs on.
func (h *HostProcess) Freeze() error {
	h.frozen = true
	return h.child.Freeze()
}

// Resume lets a frozen host process go on.
func (h *HostProcess) Resume() error {
	h.frozen = false
	return h.child.Resume()
}

// Kill ends the host process with SIGKILL and waits until it is gone.
func (h *HostProcess) Kill() error { return h.child.Kill() }

// Close makes the host process release its leases and exit. If the process still runs when ctx
// ends, Close kills it. If the process has already ended, Close returns nil.
func (h *HostProcess) Close(ctx context.Context) error { return h.child.Close(ctx) }
