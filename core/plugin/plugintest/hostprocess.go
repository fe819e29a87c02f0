package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// HostProcess is another host: this binary, started again, with a core.Client
// over a plugin of its own. It does one command at a time, and is not safe for
// concurrent use. A process that has not answered when a ctx ends is killed.
type HostProcess struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  *json.Decoder
	exited chan struct{}

	plugin int // process id when last asked
	frozen bool
}

// StartHost starts this binary, whose main or TestMain calls [HostMain], as a
// host process, and returns when its plugin is open.
func StartHost(ctx context.Context, spec HostSpec) (*HostProcess, error) {
	h := &HostProcess{exited: make(chan struct{})}
	if err := h.start(); err != nil {
		return nil, fmt.Errorf("host process: %w", err)
	}
	r, err := h.exchange(ctx, spec)
	if err == nil {
		err = r.err()
	}
	if err != nil {
		h.Kill()
		return nil, fmt.Errorf("host process: %w", err)
	}
	h.plugin = r.Pid
	return h, nil
}

func (h *HostProcess) start() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	h.cmd = exec.Command(exe)
	h.cmd.Env = append(os.Environ(), envHost+"=1")
	h.cmd.Stderr = os.Stderr
	// Like a service of its own: signals to our terminal are not for it.
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, stdoutW, err := os.Pipe()
	if err != nil {
		return err
	}
	h.cmd.Stdout = stdoutW
	err = h.cmd.Start()
	stdoutW.Close()
	if err != nil {
		stdout.Close()
		return err
	}
	h.lines = json.NewDecoder(stdout)
	go func() {
		_ = h.cmd.Wait() // how it ended is in ProcessState
		stdout.Close()
		close(h.exited)
	}()
	return nil
}

// exchange sends one line and waits for the answer.
func (h *HostProcess) exchange(ctx context.Context, message any) (reply, error) {
	if err := json.NewEncoder(h.stdin).Encode(message); err != nil {
		return reply{}, err
	}
	answer := make(chan error, 1)
	var r reply
	go func() { answer <- h.lines.Decode(&r) }()
	select {
	case err := <-answer:
		return r, err
	case <-ctx.Done():
		// Nothing else makes the read return.
		h.signal(syscall.SIGKILL)
		<-answer
		return reply{}, ctx.Err()
	}
}

// Pid of the host process.
func (h *HostProcess) Pid() int { return h.cmd.Process.Pid }

// PluginPid asks for the process id of its plugin; 0 while that is down. A
// frozen host cannot be asked: then it is what was last known.
func (h *HostProcess) PluginPid(ctx context.Context) (int, error) {
	if h.frozen {
		return h.plugin, nil
	}
	r, err := h.exchange(ctx, command{Op: "plugin"})
	if err == nil {
		h.plugin = r.Pid
	}
	return r.Pid, err
}

// Acquire waits up to timeout for the lock and returns its token; it tries
// once when timeout is not positive. The lock is kept for atLeast, if positive.
func (h *HostProcess) Acquire(ctx context.Context, name string, ttl, timeout, atLeast time.Duration) (uint64, error) {
	r, err := h.exchange(ctx, command{
		Op: "acquire", Name: name, TTLNs: int64(ttl), TimeoutNs: int64(timeout), AtLeastNs: int64(atLeast),
	})
	return r.Token, errors.Join(err, r.err())
}

// Enqueue starts an Acquire in the background and returns when it waits.
func (h *HostProcess) Enqueue(ctx context.Context, name string, ttl time.Duration) error {
	r, err := h.exchange(ctx, command{Op: "enqueue", Name: name, TTLNs: int64(ttl)})
	return errors.Join(err, r.err())
}

// State tells what the held lease says at once: Valid, whether Done is closed,
// and the name of the cause.
func (h *HostProcess) State(ctx context.Context, name string) (valid, done bool, cause string, err error) {
	r, err := h.exchange(ctx, command{Op: "state", Name: name})
	return r.Valid, r.Done, r.Cause, errors.Join(err, r.err())
}

// Release releases the held lease.
func (h *HostProcess) Release(ctx context.Context, name string) error {
	r, err := h.exchange(ctx, command{Op: "release", Name: name})
	return errors.Join(err, r.err())
}

// signal fails when the process has ended.
func (h *HostProcess) signal(sig syscall.Signal) error { return h.cmd.Process.Signal(sig) }

// Freeze stops the process, its plugin goes on. It returns when it has stopped.
func (h *HostProcess) Freeze() error {
	h.frozen = true
	return Freeze(h.Pid())
}

// Resume lets a frozen process go on.
func (h *HostProcess) Resume() error {
	h.frozen = false
	return h.signal(syscall.SIGCONT)
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (h *HostProcess) Kill() error {
	err := h.signal(syscall.SIGKILL)
	<-h.exited
	return err
}

// Close lets the process release its leases and end, and kills it when it has
// not ended before ctx does. It is no error that it has ended before.
func (h *HostProcess) Close(ctx context.Context) error {
	h.stdin.Close()
	select {
	case <-h.exited:
		return nil
	case <-ctx.Done():
		h.signal(syscall.SIGKILL)
		<-h.exited
		return ctx.Err()
	}
}
