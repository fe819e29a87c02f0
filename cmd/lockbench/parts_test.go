package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// TestPartsMeasureTogether runs three parts against one server and merges them.
func TestPartsMeasureTogether(t *testing.T) {
	dir := plugins(t)
	s := redisServer(t, nil)
	t.Chdir(t.TempDir())
	var parts sync.WaitGroup
	for n := range 3 {
		parts.Go(func() {
			if code, _, stderr := lockbench(t, "run", "--quick", "--runs", "2", "--scenarios", "throughput", "--clients", "4", "--backends", "redis",
				"--target", "redis="+s.Addr(), "--plugin-dir", dir, "-o", fmt.Sprintf("part%d", n), "--parts", "3", "--measure", "2s"); code != exitOK || !strings.Contains(stderr, "one of 3 parts") {
				t.Errorf("part %d: exit %d, %s", n, code, stderr)
			}
		})
	}
	parts.Wait()
	code, _, stderr := lockbench(t, "merge", "part0", "part1", "part2", "-o", "all")
	if code != exitOK {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	code, stdout, _ := lockbench(t, "report", "all")
	for _, want := range []string{"3 parts measured at the same time", "waited for each other", "the total on the target", "part 3", "--parts=3"} {
		if code != exitOK || !strings.Contains(strings.Join(strings.Fields(stdout), " "), want) {
			t.Errorf("exit %d, the report has no %q:\n%s", code, want, stdout)
		}
	}
	if page, err := os.ReadFile("all/report.html"); err != nil || !strings.Contains(string(page), "the total on the target") {
		t.Errorf("the page has no total: %v", err)
	}
	if code, stdout, stderr := lockbench(t, "check", "all"); code != exitOK {
		t.Errorf("exit %d, %s, %s", code, stdout, stderr)
	}
	if code, _, stderr := lockbench(t, "merge", "part0", "part1", "-o", "some"); code != exitInvalid || !strings.Contains(stderr, "2 of the 3 parts") {
		t.Errorf("some of the parts: exit %d, %s", code, stderr)
	}
}
