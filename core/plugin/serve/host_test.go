package serve

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// sleeper starts a process that stays a zombie after its death until the test ends.
func sleeper(t *testing.T) (pid int, start string) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if the process was killed before
		_ = cmd.Wait()
	})
	s, _ := proc.Of(cmd.Process.Pid)
	return cmd.Process.Pid, s.Start
}

func send(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// TestHostDeath checks that a stopped host counts as alive, and that a killed host counts as dead
// while it is a zombie.
func TestHostDeath(t *testing.T) {
	for _, pidfd := range []bool{true, false} {
		pid, start := sleeper(t)
		h, err := findHost(pid, start)
		if err != nil {
			t.Fatal(err)
		}
		if !pidfd {
			h.pidfd = nil
		}
		ended, dead := make(chan struct{}), make(chan struct{})
		close(ended)
		go func() {
			h.await(ended)
			close(dead)
		}()
		send(t, pid, syscall.SIGSTOP)
		select {
		case <-dead:
			t.Fatalf("pidfd %t: a stopped host is dead", pidfd)
		case <-time.After(50 * time.Millisecond):
		}
		send(t, pid, syscall.SIGKILL)
		select {
		case <-dead:
		case <-time.After(10 * time.Second):
			t.Fatalf("pidfd %t: a killed host is not dead", pidfd)
		}
	}
}

func TestHostIsFoundByIdAndStart(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	pid, start := sleeper(t)
	if _, err := findHost(pid, start); err != nil {
		t.Error(err)
	}
	if _, err := findHost(pid, ""); err != nil {
		t.Errorf("of a host that cannot read /proc: %v", err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pid    int
		start  string
		reason string
	}{
		{pid, start + "1", "is not the one"},
		{os.Getpid(), start + "1", "is not the one"},
		{gone.Process.Pid, "", "there is no process"},
		{gone.Process.Pid, start, "there is no process"},
		{0, "", "has not given"},
	} {
		if _, err := findHost(c.pid, c.start); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("process %d, start %q: %v, want %q", c.pid, c.start, err, c.reason)
		}
	}
}
