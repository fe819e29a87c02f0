package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

func TestPartsMeasureTogether(t *testing.T) {
	dir := plugins(t)
	s := redisServer(t, nil)
	t.Chdir(t.TempDir())
	var parts sync.WaitGroup
	for n := range 3 {
		parts.Go(func() {
			ends(t, exitOK, "one of 3 parts", "run", "--quick", "--runs", "2", "--scenarios", "throughput", "--clients", "4", "--backends", "redis",
				"--target", "redis="+s.Addr(), "--plugin-dir", dir, "-o", fmt.Sprintf("part%d", n), "--parts", "3", "--measure", "2s")
		})
	}
	parts.Wait()
	ends(t, exitOK, "", "merge", "part0", "part1", "part2", "-o", "all")
	code, stdout, _ := lockbench(t, "report", "all")
	for _, want := range []string{"3 parts measured at the same time", "waited for each other", "the total on the target", "part 3", "--parts=3"} {
		if code != exitOK || !strings.Contains(strings.Join(strings.Fields(stdout), " "), want) {
			t.Errorf("exit %d, the report has no %q:\n%s", code, want, stdout)
		}
	}
	if page, err := os.ReadFile("all/report.html"); err != nil || !strings.Contains(string(page), "the total on the target") {
		t.Errorf("the page has no total: %v", err)
	}
	ends(t, exitOK, "", "check", "all")
	ends(t, exitInvalid, "2 of the 3 parts", "merge", "part0", "part1", "-o", "some")
}
