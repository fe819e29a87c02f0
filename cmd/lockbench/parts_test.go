package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// TestPartsMeasureTogether runs three parts against one server and merges them;
// runs that did not wait for each other are refused.
func TestPartsMeasureTogether(t *testing.T) {
	dir := plugins(t)
	s, err := redisserver.Start(t.Context(), nil)
	servers.Keep(t, "redis", s, err)
	t.Chdir(t.TempDir())
	args := func(out string, more ...string) []string {
		return append([]string{
			"run", "--quick", "--runs", "2", "--scenarios", "throughput", "--clients", "4", "--backends", "redis",
			"--target", "redis=" + s.Addr(), "--plugin-dir", dir, "-o", out,
		}, more...)
	}
	var parts sync.WaitGroup
	for n := range 3 {
		parts.Go(func() {
			if code, _, stderr := lockbench(t, args(fmt.Sprintf("part%d", n), "--parts", "3", "--measure", "2s")...); code != exitOK || !strings.Contains(stderr, "one of 3 parts") {
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
	for _, out := range []string{"first", "second"} {
		if code, _, stderr := lockbench(t, args(out, "--seed", "7")...); code != exitOK {
			t.Fatalf("exit %d, %s", code, stderr)
		}
	}
	code, _, stderr = lockbench(t, "merge", "first", "second", "-o", "sum")
	for _, want := range []string{"not measured at the same time", "first was done with", "before second began", "hint:", "--repeats"} {
		if code != exitInvalid || !strings.Contains(stderr, want) {
			t.Errorf("one after the other: exit %d, %s", code, stderr)
		}
	}
}

func TestPartsThatCannotBe(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--parts", "1"}, "between 2 and 64"},
		{[]string{"--parts", "2"}, "--backends"},
		{[]string{"--parts", "2", "--backends", "redis"}, "--target redis=ADDRESS"},
	} {
		code, _, stderr := lockbench(t, append([]string{"run", "--quick", "--plugin-dir", dir}, tt.args...)...)
		if code != exitUsage || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: exit %d, %s", tt.args, code, stderr)
		}
	}
}
