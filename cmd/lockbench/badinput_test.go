package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If one backend fails, lockbench must still measure the other backends in every run.
func TestDeadBackendCostsItsOwnCells(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	ends(t, exitEnvironment, "127.0.0.1:1|the run failed", "run", "--quick", "--runs", "2", "--clients", "1", "--backends", "redis,memory",
		"--target", "redis=127.0.0.1:1", "-o", "out", "--plugin-dir", dir)
	text, err := os.ReadFile(filepath.Join("out", "results.txt"))
	if n := strings.Count(string(text), "backend=memory/"); err != nil || n != 2 {
		t.Errorf("%d lines of the backend that lives, %v", n, err)
	}
	if m := manifest(t, "out"); m.State != "failed" || len(m.Failed) != 1 || m.Failed[0].Backend != "redis" || m.MachineLoad == nil {
		t.Errorf("%+v", m)
	}
}
