package plugintest

import (
	"context"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// HostProcess is another host: this binary, started again, with a core.Client
// over its own plugin. It does one command at a time, and is not safe for
// concurrent use. A process that has not answered when a ctx ends is killed.
type HostProcess struct {
	child   *proc.Child
	replies chan reply

	plugin int // process id when last asked
	frozen bool
}

// StartHost starts this binary, whose main or TestMain calls [HostMain], as a
// host process, and returns when its plugin is open.
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

// ask sends one command, waits for the reply, and returns the reply's error as well.
func (h *HostProcess) ask(ctx context.Context, c command) (reply, error) {
	if err := h.child.Send(c); err != nil {
		return reply{}, err
	}
	select {
	case r := <-h.replies:
		return r, r.err()
	case <-h.child.Ended():
		return reply{}, proc.ErrEnded
	case <-ctx.Done():
		_ = h.Kill() // a later reply would be taken for the reply to another command
		return reply{}, ctx.Err()
	}
}

// Pid of the host process.
func (h *HostProcess) Pid() int { return h.child.Pid() }

// PluginPid asks for the process id of the host's plugin; 0 while that is down.
// A frozen host cannot be asked, so PluginPid then returns the last known id.
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

// Acquire tries once to get the lock and returns its token. The lock is kept for
// atLeast, if positive.
func (h *HostProcess) Acquire(ctx context.Context, name string, ttl, atLeast time.Duration) (uint64, error) {
	r, err := h.ask(ctx, command{Op: "acquire", Name: name, TTL: ttl, AtLeast: atLeast})
	return r.Token, err
}

// Enqueue starts an Acquire in the background and returns when it waits.
func (h *HostProcess) Enqueue(ctx context.Context, name string, ttl, atLeast time.Duration) error {
	_, err := h.ask(ctx, command{Op: "enqueue", Name: name, TTL: ttl, AtLeast: atLeast})
	return err
}

// State returns at once the state of the held lease: Valid, whether Done is
// closed, and the name of the cause.
func (h *HostProcess) State(ctx context.Context, name string) (valid, done bool, cause string, err error) {
	r, err := h.ask(ctx, command{Op: "state", Name: name})
	return r.Valid, r.Done, r.Cause, err
}

// Release releases the held lease.
func (h *HostProcess) Release(ctx context.Context, name string) error {
	_, err := h.ask(ctx, command{Op: "release", Name: name})
	return err
}

// Freeze stops the process, its plugin goes on. It returns when it has stopped.
func (h *HostProcess) Freeze() error {
	h.frozen = true
	return h.child.Freeze()
}

// Resume lets a frozen process go on.
func (h *HostProcess) Resume() error {
	h.frozen = false
	return h.child.Resume()
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (h *HostProcess) Kill() error { return h.child.Kill() }

// Close lets the process release its leases and end. It kills a process that
// is still there when ctx ends. A process that has ended before is no error.
func (h *HostProcess) Close(ctx context.Context) error { return h.child.Close(ctx) }
