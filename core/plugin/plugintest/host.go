package plugintest

import (
	"context"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/internal/proc"
)

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
