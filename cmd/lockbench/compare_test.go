package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// paced builds a variant of the memory plugin in which each operation takes at least the time d.
func paced(t *testing.T, d time.Duration) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.pace="+d.String(),
		"-o", filepath.Join(dir, "lockplugin-memory"), "./testdata/paced")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func TestCompareBuilds(t *testing.T) {
	fast, slow := paced(t, 5*time.Millisecond), paced(t, 25*time.Millisecond)
	t.Chdir(t.TempDir())
	const out = "vs"
	ends(t, exitOK, "", "run", "--quick", "--backends", "memory", "--plugin-dir", slow, "--vs", fast, "-o", out, "--runs", "5", "--clients", "1")
	stdout, _ := ends(t, exitRegression, "regression|acquire memory clients=1: p50-ns/acquire changed by +", "compare", out, "--fail-on", "p50-ns/acquire > +10%")
	if !strings.Contains(stdout, "acquire, p50-ns/acquire") || strings.Contains(stdout, "memory-vs") {
		t.Errorf("%s", stdout)
	}
	ends(t, exitOK, "", "compare", out, "--fail-on", "cycles/s > +1000%")
	ends(t, exitUsage, "did you mean|p50-ns/acquire", "compare", out, "--fail-on", "p50-ns/acquir > +10%")
	ends(t, exitUsage, "lockplugin-memory", "run", "--backends", "memory", "--plugin-dir", fast, "--vs", t.TempDir())
}

// TestFootprintMergeCompare compares the result folders of two runs. A merge of these must fail.
func TestFootprintMergeCompare(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	for _, out := range []string{"a", "b"} {
		ends(t, exitOK, "start to first grant p50", "run", "--quick", "--runs", "2", "--scenarios", "footprint", "--backends", "memory", "-o", out, "--plugin-dir", dir)
	}
	ends(t, exitInvalid, "at least 4", "compare", "a", "b", "--fail-on", "p50-ns/first-grant > +1000%")
	ends(t, exitRegression, "wanted <= 1|missed", "compare", "a", "--fail-on", "idle-bytes/plugin > 1", "--fail-on", "p50-ns/first-grant > 1h", "--format", "md")
	ends(t, exitInvalid, "a was measured alone|hint: run them with --parts", "merge", "a", "b", "-o", "both")
}
