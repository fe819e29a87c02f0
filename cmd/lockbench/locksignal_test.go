//go:build linux

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/lockbench/lockbench/internal/proc"
)

// lockbench must not change the command's arguments, in any encoding. A lock's name must be UTF-8.
func TestLockPassesAnyBytes(t *testing.T) {
	g := startGuarded(t)
	cmd := g.command("", "lock", "redis", "bytes")
	const odd = "caf\xe9.txt"
	cmd.Args = append(cmd.Args[:len(cmd.Args)-3], "printf", "%s", odd)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != odd {
		t.Errorf("the command got %q: %v", out, err)
	}
	ends(t, exitUsage, "is not UTF-8", "lock", "redis", "a\xff", "--", "true")
}

// If a signal stops only the command, lockbench must stop, too. When the command is resumed,
// lockbench must go on, and end with the command's status.
func TestStoppedCommandGoesOn(t *testing.T) {
	g := startGuarded(t)
	s := g.sleep(t, os.Stderr, "lock", "redis", "stopped")
	stopped := func() bool {
		state, _ := proc.Of(s.Process.Pid)
		return state.Stopped()
	}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := syscall.Kill(s.command, sig); err != nil {
			t.Fatal(err)
		}
		eventually(t, "lockbench does as its command", func() bool { return stopped() == (sig == syscall.SIGSTOP) })
	}
	if err := syscall.Kill(s.command, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "lockbench is stopped with its command", stopped)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := syscall.Kill(s.command, sig); err != nil {
			t.Fatal(err)
		}
	}
	if code := ended(t, s.Cmd).ExitCode(); code != 143 {
		t.Errorf("status %d, want 143", code)
	}
}

// TestInterruptedAtOnce sends a signal while lockbench waits for the plugin's description.
func TestInterruptedAtOnce(t *testing.T) {
	g := startGuarded(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		g.interruptedAtOnce(t, sig)
	}
}

func (g *guarded) interruptedAtOnce(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if signal.Ignored(sig) { // as under nohup
		return
	}
	g.dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(g.dir, "lockplugin-redis"), []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := g.command("true", "lock", "redis", "early")
	start(t, cmd)
	eventually(t, "the plugin is asked", func() bool { return pidOf(cmd.Process.Pid, "sleep") != 0 })
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	if code := ended(t, cmd).ExitCode(); code != 128+int(sig) {
		t.Errorf("status %d after signal %d", code, sig)
	}
}

// If lockbench was started with SIGINT and SIGQUIT ignored, the user's command must ignore both. A
// shell without job control starts a command with "&" in this way.
func TestIgnoredSignals(t *testing.T) {
	g := startGuarded(t)
	args := g.command("kill -INT $$; kill -QUIT $$; kill -QUIT $(cut -d' ' -f4 /proc/$PPID/stat); echo lived", "lock", "redis", "ignored").Args
	out, err := exec.Command("sh", append([]string{"-c", `"$@" & wait $!`, "sh"}, args...)...).CombinedOutput()
	if err != nil || string(out) != "lived\n" {
		t.Errorf("%v: %s", err, out)
	}
}
