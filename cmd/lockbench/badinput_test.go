package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBadFolders: what is wrong with a folder is exit code 2.
func TestBadFolders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", file}, {"report", file}, {"run", "-o", file}, {"run", "-o", filepath.Join(file, "below")}} {
		ends(t, exitUsage, file, args...)
	}
	for _, args := range [][]string{{"run", "-o", "-"}, {"merge", "a", "b", "-o", "-"}} {
		ends(t, exitUsage, "is not a folder", args...)
	}
}

// TestTargetDies in mid-run: an environment error that names it, and a folder
// with all that was measured before.
func TestTargetDies(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	s := redisServer(t, nil)
	ended := make(chan struct{})
	dead := make(chan error, 1)
	go func() {
		measured := func() bool {
			text, err := os.ReadFile(filepath.Join("out", "results.txt"))
			return err == nil && strings.Count(string(text), "BenchmarkAcquire/") > 1
		}
		for !measured() {
			select {
			case <-ended: // too early; the run says why
				dead <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
		dead <- s.Stop()
	}()
	// With this seed a floor follows, which ends at once; a cell of callers that
	// wait for the store would take its ten seconds of grace.
	code, stdout, stderr := lockbench(t, "run", "--quick", "--runs", "1000", "--clients", "2", "--backends", "redis", "--seed", "1",
		"--target", "redis="+s.Addr(), "-o", "out", "--plugin-dir", dir)
	close(ended)
	if err := <-dead; err != nil {
		t.Fatal(err)
	}
	if code != exitEnvironment || !strings.Contains(stderr, s.Addr()) || !strings.Contains(stdout, "the run failed") || !strings.Contains(stdout, "redis (plugin)") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if m := manifest(t, "out"); m.State != "failed" || m.Failure == "" {
		t.Errorf("%+v", m)
	}
	ends(t, exitOK, "0 overlaps", "check", "out")
}

// TestDeadBackendCostsItsOwnCells: the others are measured in every run, and the
// run has failed all the same.
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
