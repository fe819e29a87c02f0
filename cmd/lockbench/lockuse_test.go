//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestLockStatus(t *testing.T) {
	g := startGuarded(t)
	odd := filepath.Join(t.TempDir(), "odd")
	if err := os.WriteFile(odd, []byte("\x7fELF"), 0o700); err != nil {
		t.Fatal(err)
	}
	busy, _ := g.start(t, "lock", "redis", "busy")
	for _, tt := range []struct {
		args, script string
		want         int
		text         string // a text in the output; "" for no output
	}{
		{"lock redis free", "exit 0", 0, ""},
		{"lock redis free", "exit 9", 9, ""},
		{"lock redis free", "kill -9 $$", 137, ""},
		{"lock redis free", "cat; echo $LOCKBENCH_LOCK; test $LOCKBENCH_TOKEN -gt 0 && date -d $LOCKBENCH_LEASE_UNTIL >/dev/null", 0, "typed\nfree\n"},
		{"lock redis free", g.binary + " lock redis inner --target redis=" + g.server.Addr() + " --plugin-dir " + g.dir + " -- sh -c 'echo $LOCKBENCH_LOCK'", 0, "inner\n"},
		{"lock redis free -v", "exit 0", 0, "released"},
		{"lock redis free", "sleep 0.3 & exit 5", 5, ""}, // lockbench waits for the process that the command leaves behind
		{"lock redis free --max-hold 100ms", "sleep 600", 79, "longest time"},
		{"lock redis busy --try", "exit 0", 75, ""},
		{"lock redis busy --try --conflict-exit-code 0", "exit 1", 0, ""},
		{"lock redis busy --wait 100ms", "exit 0", 75, ""},
		{"lock redis busy --wait 100ms -v", "exit 0", 75, ":" + strconv.Itoa(busy.Process.Pid)},
		{"lock redis free --ttl 1ms", "exit 0", exitUsage, "1ms"},
		{"lock redis free --target redis=127.0.0.1:1 --try", "exit 0", exitEnvironment, "--target"},
		{"lock redis free --target redis=127.0.0.1:1 --wait 200ms", "exit 0", exitEnvironment, "--target"},
		{"lock memory free", "exit 0", exitUsage, "no other process"},
		{"lead redis led", "exit 4", 4, ""},
		{"lead redis led --max-hold 100ms", "trap 'exit 7' TERM; [ -e " + odd + ".again ] && exit 6; touch " + odd + ".again; sleep 600 & wait", 6, "longest time"},
	} {
		cmd := g.command(tt.script, strings.Fields(tt.args)...)
		if strings.Contains(tt.args, "--target") || strings.Contains(tt.args, "memory") {
			i := slices.Index(cmd.Args, "redis="+g.server.Addr())
			cmd.Args = slices.Delete(cmd.Args, i-1, i+1)
		}
		cmd.Stdin = strings.NewReader("typed\n")
		out, _ := cmd.CombinedOutput() // the status is checked below
		got := cmd.ProcessState.ExitCode()
		if got != tt.want || !strings.Contains(string(out), tt.text) || tt.text == "" && len(out) > 0 {
			t.Errorf("%s -- %s: status %d, want %d and %q; %s", tt.args, tt.script, got, tt.want, tt.text, out)
		}
	}
	ends(t, 127, "not found", "lock", "redis", "free", "--", "no-such-program")
	ends(t, 126, "permission denied", "lock", "redis", "free", "--", "/etc/passwd")
	ends(t, 126, "is a directory", "lock", "redis", "free", "--", "/etc")
	ends(t, exitUsage, "behind -- a command", "lock", "redis", "free", "true")
	cmd := exec.Command(g.binary, "lock", "redis", "free", "--target", "redis="+g.server.Addr(), "--plugin-dir", g.dir, "--", odd)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != 126 || !strings.Contains(string(out), odd) {
		t.Errorf("%s: status %d, want 126; %s", odd, got, out)
	}
}

// With --at-least, the lock must stay held after the command has ended.
func TestLockAtLeast(t *testing.T) {
	g := startGuarded(t)
	for _, status := range []int{0, 75} {
		cmd := g.command("exit 0", "lock", "redis", "tick", "--try", "--at-least", "30s")
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != status {
			t.Errorf("status %d, want %d; %s", got, status, out)
		}
	}
}

// With --tick, only the first command in a tick (such as an hour) runs, even if it is killed. The
// test uses a tick that began at least a minute ago and goes on for at least half an hour.
func TestLockTick(t *testing.T) {
	g := startGuarded(t)
	tick := time.Hour
	for since := time.Since(time.Now().Truncate(tick)); since < time.Minute || since > tick/2; since = time.Since(time.Now().Truncate(tick)) {
		tick += time.Minute
	}
	for i, status := range []int{128 + 9, 75, 75} {
		cmd := g.command("test -n \"$LOCKBENCH_TICK\" && kill -9 $$", "lock", "redis", "yearly", "--tick", tick.String())
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != status {
			t.Errorf("run %d: status %d, want %d; %s", i, got, status, out)
		}
	}
	for tick = 24 * time.Hour; time.Since(time.Now().Truncate(tick)) < 61*time.Minute; tick += time.Hour {
	}
	late := g.command("exit 0", "lock", "redis", "daily", "--tick", tick.String())
	if out, _ := late.CombinedOutput(); late.ProcessState.ExitCode() != 75 || !strings.Contains(string(out), ", the next is due at ") {
		t.Errorf("too late for a tick of %v: %v, %s", tick, late.ProcessState, out)
	}
	both := g.command("exit 0", "lock", "redis", "yearly", "--tick", "1m", "--try")
	if out, _ := both.CombinedOutput(); both.ProcessState.ExitCode() != 2 {
		t.Errorf("--tick beside --try: %v, %s", both.ProcessState, out)
	}
}

func TestLockNamesAreCompleted(t *testing.T) {
	dir := plugins(t)
	s := redisServer(t, nil)
	c := holder(t, dir, s.Addr())
	hold(t, c, "jobs/refresh")
	hold(t, c, "other")
	for _, command := range [][]string{{"lock"}, {"lead"}, {"locks", "inspect"}, {"locks", "break"}} {
		args := append(append([]string{"__complete"}, command...), "--target", "redis="+s.Addr(), "--plugin-dir", dir, "redis", "jo")
		if code, stdout, _ := lockbench(t, args...); code != exitOK || !strings.HasPrefix(stdout, "jobs/refresh\n") || strings.Contains(stdout, "other") {
			t.Errorf("%v: exit %d, %q", command, code, stdout)
		}
	}
}

func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	ends(t, exitOK, "", "man", dir)
	for _, c := range commands(newRoot()) {
		page := filepath.Join(dir, "share", "man", "man1", strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		text, err := os.ReadFile(page)
		if err != nil || !bytes.Contains(text, []byte(".SH EXAMPLE")) {
			t.Errorf("%s: %v", page, err)
		}
	}
	for _, file := range []string{"bash-completion/completions/lockbench", "zsh/site-functions/_lockbench", "fish/vendor_completions.d/lockbench.fish"} {
		if text, err := os.ReadFile(filepath.Join(dir, "share", file)); err != nil || !bytes.Contains(text, []byte("__complete")) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
