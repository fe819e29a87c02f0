package plugintest

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/drivertest"
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

const commandLimit = 30 * time.Second

type testHost struct{ *HostProcess }

var _ drivertest.Host = (*testHost)(nil)

func startHost(t drivertest.T, spec HostSpec) drivertest.Host {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	p, err := StartHost(ctx, spec)
	if err != nil {
		t.Fatalf("%v", err)
	}
	h := &testHost{HostProcess: p}
	t.Cleanup(func() { h.end(t) })
	return h
}

// end ends the host and its plugin, even if the test case has frozen or killed them.
func (h *testHost) end(t drivertest.T) {
	t.Helper()
	// Resume fails if the test case has killed the host. That must not fail the case.
	_ = h.HostProcess.Resume()
	plugin := h.HostProcess.plugin
	if plugin > 0 {
		_ = syscall.Kill(plugin, syscall.SIGCONT)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupBudget)
	defer cancel()
	if err := h.Close(ctx); err != nil {
		t.Errorf("the host process did not end: %v", err)
	}
	for plugin > 0 && Running(plugin) {
		if ctx.Err() != nil {
			t.Errorf("plugin process %d has outlived its host", plugin)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// within calls the function do, and fails the test if the host does not answer in commandLimit.
func (h *testHost) within(t drivertest.T, do func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	err := do(ctx)
	if ctx.Err() != nil {
		t.Fatalf("the host process does not answer: %v", ctx.Err())
	}
	return err
}

func (h *testHost) Kill(t drivertest.T) { t.Helper(); must(t, "SIGKILL", h.HostProcess.Kill()) }

func (h *testHost) Freeze(t drivertest.T) { t.Helper(); must(t, "SIGSTOP", h.HostProcess.Freeze()) }

func (h *testHost) Resume(t drivertest.T) { t.Helper(); must(t, "SIGCONT", h.HostProcess.Resume()) }

func (h *testHost) Plugin() drivertest.Process {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	pid, err := h.PluginPid(ctx)
	if err != nil {
		pid = 0 // an action on process 0 fails the case
	}
	return process{pid}
}

func (h *testHost) Acquire(t drivertest.T, name string, ttl, atLeast time.Duration) (token uint64, err error) {
	t.Helper()
	err = h.within(t, func(ctx context.Context) (err error) {
		token, err = h.HostProcess.Acquire(ctx, name, ttl, atLeast)
		return err
	})
	return token, err
}

func (h *testHost) Enqueue(t drivertest.T, name string, ttl, atLeast time.Duration) {
	t.Helper()
	must(t, "enqueue", h.within(t, func(ctx context.Context) error { return h.HostProcess.Enqueue(ctx, name, ttl, atLeast) }))
}

func (h *testHost) State(t drivertest.T, name string) (valid, done bool, cause string) {
	t.Helper()
	must(t, "state", h.within(t, func(ctx context.Context) (err error) {
		valid, done, cause, err = h.HostProcess.State(ctx, name)
		return err
	}))
	return valid, done, cause
}

func (h *testHost) Release(t drivertest.T, name string) error {
	t.Helper()
	return h.within(t, func(ctx context.Context) error { return h.HostProcess.Release(ctx, name) })
}

func must(t drivertest.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s of the host process: %v", what, err)
	}
}

// Running reports whether process pid runs. It returns false for a zombie,
// because a zombie may stay for ever: some init processes reap no orphans.
func Running(pid int) bool { return proc.Running(pid) }

// Freeze stops process pid with SIGSTOP and returns when the process has stopped.
func Freeze(pid int) error { return proc.Freeze(pid) }

// process is a process that a test case may kill or freeze. It implements drivertest.Process.
type process struct{ pid int }

func (p process) Pid() int { return p.pid }

func (p process) Kill(t drivertest.T) {
	t.Helper()
	p.harm(t, "SIGKILL", func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) })
}

func (p process) Freeze(t drivertest.T) {
	t.Helper()
	p.harm(t, "SIGSTOP", Freeze)
}

func (p process) Resume(t drivertest.T) {
	t.Helper()
	p.harm(t, "SIGCONT", func(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) })
}

func (p process) harm(t drivertest.T, signal string, send func(pid int) error) {
	t.Helper()
	if p.pid <= 0 { // kill(2) with 0 would signal this process's group
		t.Fatalf("%s to a process that is gone", signal)
	}
	if err := send(p.pid); err != nil {
		t.Fatalf("%s to process %d: %v", signal, p.pid, err)
	}
}
