package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// After lockbench is killed, no server, plugin, host or temporary file may be left. "lockbench
// check" must accept the result folder.
func TestKilledRunLeavesNothing(t *testing.T) {
	redisServer(t, nil) // skips without a Redis server
	dir := plugins(t)
	binary := plugintest.Build(t, "github.com/lockbench/lockbench/cmd/lockbench")
	for _, s := range bench.Choices("scenarios") {
		line := "Benchmark" + strings.ToUpper(s.Name[:1]) + s.Name[1:] + "/"
		t.Run(s.Name, func(t *testing.T) {
			killedIn(t, "results.txt", line, dir, binary, "run", "--scenarios", s.Name)
		})
	}
	t.Run("faults", func(t *testing.T) {
		killedIn(t, "rounds.jsonl", `"round":1`, dir, binary, "faults")
	})
}

// killedIn kills lockbench when the file in the result folder contains the given text.
func killedIn(t *testing.T, file, text, dir, binary string, args ...string) {
	tmp := t.TempDir()
	out := filepath.Join(t.TempDir(), "out")
	cmd := exec.Command(binary, append(args, "--quick", "--runs", "100", "--backends", "redis", "-o", out, "--plugin-dir", dir)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "something is measured", func() bool {
		written, err := os.ReadFile(filepath.Join(out, file))
		return err == nil && bytes.Contains(written, []byte(text))
	})
	if runtime.GOOS == "linux" && len(processesWith(tmp)) < 3 {
		t.Error("lockbench, a server and a plugin do not show: this test would not see what is left of them")
	}
	killAndLook(t, cmd, tmp)
	ends(t, exitOK, "events end early", "check", out)
	ends(t, exitOK, "or was killed", "report", out)
}

func killAndLook(t *testing.T, cmd *exec.Cmd, tmp string) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"
	killed := time.Now()
	eventually(t, "nothing is left in the directory for temporary files", func() bool {
		entries, err := os.ReadDir(tmp)
		return err == nil && len(entries) == 0
	})
	eventually(t, "no process is left that works there", func() bool { return len(processesWith(tmp)) == 0 })
	t.Logf("gone after %v", time.Since(killed).Round(time.Millisecond))
}

// TestKilledSearchLeavesNothing kills lockbench while a fault is in effect, such as a frozen host,
// which cannot end by itself.
func TestKilledSearchLeavesNothing(t *testing.T) {
	redisServer(t, nil) // skips without a Redis server
	dir := plugins(t)
	binary := plugintest.Build(t, "github.com/lockbench/lockbench/cmd/lockbench")
	for _, action := range []string{"freeze-host", "freeze-plugin", "lost-directory"} {
		t.Run(action, func(t *testing.T) {
			tmp := t.TempDir()
			cmd := exec.Command(binary, "faults", "--search", "1m", "--backends", "redis", "--seed", "1",
				"--actions", action, "-o", filepath.Join(t.TempDir(), "out"), "--plugin-dir", dir)
			cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			marks := filepath.Join(tmp, "*", "stopped-*.pid")
			if action == "lost-directory" {
				marks = filepath.Join(tmp, "*", "play-*", "*", "*.away")
			}
			eventually(t, "it has done "+action, func() bool {
				found, _ := filepath.Glob(marks) // the pattern is valid
				return len(found) > 0
			})
			killAndLook(t, cmd, tmp)
		})
	}
}

// processesWith lists the processes whose TMPDIR is tmp or a directory below tmp. It needs /proc.
func processesWith(tmp string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "TMPDIR="+tmp) {
			found = append(found, filepath.Dir(f))
		}
	}
	return found
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}

func TestConform(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	path := filepath.Join(plugins(t), "lockplugin-memory")
	stdout, _ := ends(t, exitOK, "", "conform", path)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) != len(drivertest.Rules())+1 {
		t.Fatalf("%d lines:\n%s", len(lines), stdout)
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, "rules ran: ") || !strings.Contains(last, " 0 failed; ") {
		t.Errorf("the last line does not count: %q", last)
	}
	for i, r := range drivertest.Rules() {
		if !strings.HasPrefix(lines[i], r.ID+" ") {
			t.Errorf("line %d is %q, want rule %s", i, lines[i], r.ID)
		}
	}
}
