//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// A user's command must end before the lease on its lock ends, even if it ignores SIGTERM.
func TestLockIsLost(t *testing.T) {
	g := startGuarded(t)
	const ttl = 2 * time.Second
	where := []string{"--target", "redis=" + g.server.Addr(), "--plugin-dir", g.dir}
	for name, lose := range map[string]func(*exec.Cmd){
		"broken": func(*exec.Cmd) {
			ends(t, exitOK, "broke", append([]string{"locks", "break", "redis", "lost", "--yes"}, where...)...)
		},
		"frozen store": func(*exec.Cmd) {
			if err := g.server.Freeze(); err != nil {
				t.Fatal(err)
			}
		},
		"stopped keeper": func(cmd *exec.Cmd) {
			if err := proc.Freeze(keeperOf(t, cmd)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds() {
				termed := filepath.Join(t.TempDir(), "termed")
				cmd := g.command("trap 'touch "+termed+"' TERM; touch "+termed+".not; while :; do sleep 0.01; done", "lock", "redis", "lost", "--ttl", ttl.String())
				var said strings.Builder
				cmd.Stderr = &said
				start(t, cmd)
				// A forked process has lockbench's arguments until exec, so marked may find it too early.
				eventually(t, "it runs", func() bool {
					_, err := os.Stat(termed + ".not")
					return err == nil
				})
				lost := time.Now()
				lose(cmd)
				for len(marked(cmd, termed)) > 0 {
					if took := time.Since(lost); took > ttl {
						t.Errorf("it runs %v after its lease could last be renewed", took)
						break
					}
					time.Sleep(time.Millisecond)
				}
				if name == "frozen store" {
					if err := g.server.Resume(); err != nil {
						t.Fatal(err)
					}
					if _, err := os.Stat(termed); err != nil {
						t.Errorf("it was not asked to end: %v", err)
					}
				}
				_ = cmd.Wait()
				if got := cmd.ProcessState.ExitCode(); got != 79 || strings.Count(said.String(), `"lost"`) != 1 {
					t.Errorf("status %d, want 79; it said %s", got, said.String())
				}
			}
		})
	}
}

// If a host is suspended for longer than the TTL, lockbench must end the user's command as soon as
// the host resumes. The test freezes all processes of lockbench instead of a host.
func TestSuspendedLock(t *testing.T) {
	g := startGuarded(t)
	const ttl = time.Second
	var longest time.Duration
	for range rounds() {
		cmd, mark := g.start(t, "lock", "redis", "slept", "--ttl", ttl.String())
		keeper := keeperOf(t, cmd)
		all := append([]int{cmd.Process.Pid, keeper, pluginOf(keeper)}, marked(cmd, mark)...)
		for _, pid := range all {
			if err := proc.Freeze(pid); err != nil {
				t.Fatal(err)
			}
		}
		g.acquire(t, "slept", func() {})
		woken := time.Now()
		slices.Reverse(all) // so that the command is resumed first
		for _, pid := range all {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the command has ended", func() bool { return len(marked(cmd, mark)) == 0 })
		longest = max(longest, time.Since(woken))
		if s := ended(t, cmd); s.ExitCode() != 79 {
			t.Errorf("%v, want status 79", s)
		}
	}
	t.Logf("the command had ended %v after the machine woke, or sooner", longest.Round(time.Millisecond))
}

func TestWaitersInOrder(t *testing.T) {
	g := startGuarded(t)
	file := filepath.Join(t.TempDir(), "served")
	busy := g.sleep(t, nil, "lock", "redis", "queue", "--ttl", "30s")
	var want strings.Builder
	var all []*exec.Cmd
	for i := range often(4, 20) {
		cmd := g.command(fmt.Sprintf("echo %d >>%s", i, file), "lock", "redis", "queue", "--ttl", "30s")
		start(t, cmd)
		all = append(all, cmd)
		fmt.Fprintln(&want, i)
		g.eventuallyWait(t, "queue", i+1)
	}
	if err := busy.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range all {
		if s := ended(t, cmd); !s.Success() {
			t.Errorf("a waiter: %v", s)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != want.String() {
		t.Errorf("served in the order %q (%v)", text, err)
	}
}

func (g *guarded) eventuallyWait(t *testing.T, name string, waiters int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait", waiters), func() bool {
		h, err := g.rival.Inspect(t.Context(), name)
		return err == nil && h.Waiters == waiters
	})
}

// If a signal comes while lockbench waits for a lock, lockbench must end with the signal's status,
// and leave no process and no queue entry.
func TestInterruptedWaiter(t *testing.T) {
	g := startGuarded(t)
	g.start(t, "lock", "redis", "busy")
	for i := range rounds() {
		sig := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}[i%3]
		tmp := t.TempDir()
		cmd := g.command("exit 1", "lock", "redis", "busy")
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		g.eventuallyWait(t, "busy", 1)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != 128+int(sig) && sig != syscall.SIGKILL {
			t.Errorf("%v: status %d", sig, got)
		}
		eventually(t, "nothing of it is left", func() bool {
			entries, err := os.ReadDir(tmp)
			return err == nil && len(entries) == 0 && len(processesWith(tmp)) == 0
		})
		g.eventuallyWait(t, "busy", 0)
	}
}

// TestManyLocks runs many commands under one lock, first all at once, and then one by one.
func TestManyLocks(t *testing.T) {
	g := startGuarded(t)
	atOnce, inRow := often(10, 100), often(5, 1000)
	tmp, file := t.TempDir(), filepath.Join(t.TempDir(), "count")
	start := func() *exec.Cmd {
		cmd := g.command("n=$(cat "+file+" 2>/dev/null || echo 0); sleep 0.005; echo $((n+1)) >"+file, "lock", "redis", "many", "--ttl", "30s")
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	wait := func(cmd *exec.Cmd) {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, cmd.Stderr)
		}
	}
	var all []*exec.Cmd
	for range atOnce {
		all = append(all, start())
	}
	for _, cmd := range all {
		wait(cmd)
	}
	for range inRow {
		wait(start())
	}
	if text, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(atOnce+inRow) {
		t.Errorf("counted %q, want %d (%v)", text, atOnce+inRow, err)
	}
	entries, err := os.ReadDir(tmp)
	if err != nil || len(entries) > 0 || len(processesWith(tmp)) > 0 {
		t.Errorf("left: %v, %v (%v)", entries, processesWith(tmp), err)
	}
	ends(t, exitOK, "no lock is held", "locks", "list", "redis", "--target", "redis="+g.server.Addr(), "--plugin-dir", g.dir)
}
