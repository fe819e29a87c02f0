package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/record"
)

// TestSafety runs one fault on one backend, and then does with the folder what
// somebody does who does not believe it.
func TestSafety(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	redisServer(t, nil) // or there is nothing to judge
	code, stdout, stderr := lockbench(t, "run", "--scenarios", "safety", "--backends", "memory,redis", "--faults", "kill-host", "--runs", "1",
		"-o", "out", "--plugin-dir", dir)
	if code != exitOK {
		t.Fatalf("exit %d\n%s\n%s", code, stdout, stderr)
	}
	for _, want := range []string{"kill-host", "redis    held", "not run: memory under kill-host", "safe:"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the table does not show %q:\n%s", want, stdout)
		}
	}
	if code, again, _ := lockbench(t, "report", "out"); code != exitOK || again != stdout {
		t.Errorf("exit %d; the text differs from that of the run:\n%s", code, again)
	}
	if code, text, stderr := lockbench(t, "check", "out"); code != exitOK || !strings.Contains(text, "held") {
		t.Errorf("exit %d, %q, %q", code, text, stderr)
	}
	// The first holder, which was killed, believed for an hour longer.
	path := filepath.Join("out", record.RoundsFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edited := regexp.MustCompile(`("host":0,"name":0,[^}]*"valid_ns":)\d+`).ReplaceAll(text, []byte("${1}3600000000000"))
	if err := os.WriteFile(path, edited, 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = lockbench(t, "check", "out")
	if code != exitUnsafe || !strings.Contains(stdout, "two holders at once") || !strings.Contains(stdout, "lock \"0\"") {
		t.Errorf("exit %d for a folder that holds an overlap, %q, %q", code, stdout, stderr)
	}
}
