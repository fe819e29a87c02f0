package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// paced builds a memory plugin whose operations take at least that long.
func paced(t *testing.T, d time.Duration) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.pace="+d.String(),
		"-o", filepath.Join(dir, "lockplugin-memory"), "./testdata/paced")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func TestCompareBuilds(t *testing.T) {
	fast, slow := paced(t, 5*time.Millisecond), paced(t, 25*time.Millisecond)
	t.Chdir(t.TempDir())
	const out = "vs"
	code, stdout, stderr := lockbench(t, "run", "--quick", "--backends", "memory", "--plugin-dir", slow, "--vs", fast, "-o", out, "--runs", "5", "--clients", "1")
	if code != exitOK {
		t.Fatalf("exit %d\n%s\n%s", code, stdout, stderr)
	}
	code, stdout, stderr = lockbench(t, "compare", out, "--fail-on", "p50-ns/acquire > +10%")
	if code != exitRegression || !strings.Contains(stderr, "regression") || !strings.Contains(stderr, "acquire memory clients=1: p50-ns/acquire changed by +") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if !strings.Contains(stdout, "acquire, p50-ns/acquire") || strings.Contains(stdout, "memory-vs") {
		t.Errorf("%s", stdout)
	}
	if code, _, stderr := lockbench(t, "compare", out, "--fail-on", "cycles/s > +1000%"); code != exitOK {
		t.Errorf("it did not become faster: exit %d, %q", code, stderr)
	}
	if code, _, stderr := lockbench(t, "compare", out, "--fail-on", "p50-ns/acquir > +10%"); code != exitUsage || !strings.Contains(stderr, "did you mean") || !strings.Contains(stderr, "p50-ns/acquire") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if code, _, stderr := lockbench(t, "run", "--backends", "memory", "--plugin-dir", fast, "--vs", t.TempDir()); code != exitUsage || !strings.Contains(stderr, "lockplugin-memory") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// TestFootprintMergeCompare measures twice, and does with both folders what
// takes two.
func TestFootprintMergeCompare(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	for _, out := range []string{"a", "b"} {
		code, stdout, stderr := lockbench(t, "run", "--quick", "--runs", "2", "--scenarios", "footprint", "--backends", "memory", "-o", out, "--plugin-dir", dir)
		if code != exitOK || !strings.Contains(stdout, "start to first grant p50") {
			t.Fatalf("exit %d\n%s\n%s", code, stdout, stderr)
		}
	}
	code, _, stderr := lockbench(t, "compare", "a", "b", "--fail-on", "p50-ns/first-grant > +1000%")
	if code != exitInvalid || !strings.Contains(stderr, "at least 4") {
		t.Errorf("two runs support nothing: exit %d, %q", code, stderr)
	}
	code, stdout, stderr := lockbench(t, "compare", "a", "--fail-on", "idle-bytes/plugin > 1", "--fail-on", "p50-ns/first-grant > 1h", "--format", "md")
	if code != exitRegression || !strings.Contains(stderr, "wanted <= 1") || strings.Count(stdout, "| missed |") != 1 || strings.Count(stdout, "| ok     |") != 1 {
		t.Errorf("limits of one folder: exit %d, %q\n%s", code, stderr, stdout)
	}
	if code, _, stderr := lockbench(t, "merge", "--repeats", "a", "b", "-o", "both"); code != exitOK {
		t.Fatalf("exit %d, %q", code, stderr)
	}
	code, stdout, _ = lockbench(t, "report", "both")
	if code != exitOK || !strings.Contains(stdout, "merged from 2 runs of lockbench") || !strings.Contains(stdout, "median of 4 runs") {
		t.Errorf("exit %d\n%s", code, stdout)
	}
}
