package main

import (
	"encoding/json"
	"os"
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

// versus interleaves the plugins of two directories and returns the folder.
func versus(t *testing.T, now, other string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "vs")
	args = append([]string{"run", "--quick", "--backends", "memory", "--plugin-dir", now, "--vs", other, "-o", out}, args...)
	if code, stdout, stderr := lockbench(t, args...); code != exitOK {
		t.Fatalf("exit %d\n%s\n%s", code, stdout, stderr)
	}
	return out
}

func TestCompareBuilds(t *testing.T) {
	fast, slow := paced(t, 5*time.Millisecond), paced(t, 25*time.Millisecond)
	t.Chdir(t.TempDir())
	out := versus(t, slow, fast, "--runs", "5", "--clients", "1")
	code, stdout, stderr := lockbench(t, "compare", out, "--fail-on", "p50-ns/acquire > +10%")
	if code != exitRegression || !strings.Contains(stderr, "regression") || !strings.Contains(stderr, "acquire memory clients=1: p50-ns/acquire changed by +") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if !strings.Contains(stdout, "acquire, p50-ns/acquire") || strings.Contains(stdout, "memory-vs") {
		t.Errorf("%s", stdout)
	}
	for _, line := range strings.Split(stdout, "\n") {
		if len([]rune(line)) > 80 && !strings.Contains(line, "Holm") {
			t.Errorf("wider than a terminal: %q", line)
		}
	}
	if code, _, stderr := lockbench(t, "compare", out, "--fail-on", "cycles/s > +1000%"); code != exitOK {
		t.Errorf("it did not become faster: exit %d, %q", code, stderr)
	}
	if code, _, stderr := lockbench(t, "compare", out, "--fail-on", "p50-ns/acquir > +10%"); code != exitUsage || !strings.Contains(stderr, "did you mean") || !strings.Contains(stderr, "p50-ns/acquire") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if code, stdout, stderr := lockbench(t, "check", out); code != exitOK || !strings.Contains(stdout, "memory-vs") {
		t.Errorf("exit %d, %s, %q", code, stdout, stderr)
	}
	if code, _, stderr := lockbench(t, "run", "--backends", "memory", "--plugin-dir", fast, "--vs", t.TempDir()); code != exitUsage || !strings.Contains(stderr, "lockplugin-memory") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// worse counts the rows of a comparison that are worse.
func worse(t *testing.T, dir string) (n int) {
	t.Helper()
	code, stdout, stderr := lockbench(t, "compare", dir, "--format", "json")
	var doc struct {
		Rows []struct{ Worse bool }
	}
	if err := json.Unmarshal([]byte(stdout), &doc); code != exitOK || err != nil || len(doc.Rows) == 0 {
		t.Fatalf("exit %d, %v, %q", code, err, stderr)
	}
	for _, r := range doc.Rows {
		if r.Worse {
			n++
		}
	}
	return n
}

// TestOneBuildAgainstItself: of 20 comparisons of one build with itself at most
// one finds a regression, and all 20 with a build that takes 20 % longer do.
func TestOneBuildAgainstItself(t *testing.T) {
	if os.Getenv("LOCKBENCH_LONG") == "" {
		t.Skip("takes 10 minutes: set LOCKBENCH_LONG=1")
	}
	same, slower := paced(t, 5*time.Millisecond), paced(t, 6*time.Millisecond)
	t.Chdir(t.TempDir())
	wrong, found := 0, 0
	for i := range 20 {
		n := worse(t, versus(t, same, same, "--runs", "10", "--clients", "8"))
		m := worse(t, versus(t, slower, same, "--runs", "10", "--clients", "8"))
		t.Logf("comparison %d: %d rows worse of one build with itself, %d with the slower one", i+1, n, m)
		wrong, found = wrong+min(n, 1), found+min(m, 1)
	}
	if wrong > 1 || found != 20 {
		t.Errorf("%d of 20 found a regression that is none, %d of 20 the one that is", wrong, found)
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
	if code, stdout, stderr := lockbench(t, "check", "both"); code != exitOK {
		t.Errorf("exit %d, %s, %q", code, stdout, stderr)
	}
	if code, _, stderr := lockbench(t, "compare", "a", "both"); code != exitOK {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if code, _, stderr := lockbench(t, "merge", "--repeats", "a", "a", "-o", "c"); code != exitUsage || !strings.Contains(stderr, "the same run") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}
