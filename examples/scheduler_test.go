package examples_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// every is the interval of the ticks in these tests. If an instance is killed in
// mid-job, the job's lock must be free within two ticks, even on a busy machine.
var every = time.Second

func init() {
	if long {
		every /= 2
	}
}

// starts returns the number of times that the job was started at each tick.
func starts(lines []string) map[string]int {
	count := map[string]int{}
	for _, line := range lines {
		if tick, rest, _ := strings.Cut(line, " "); strings.Contains(rest, " start token ") {
			count[tick]++
		}
	}
	return count
}

// checkTicks fails unless lines has one start of each tick, from the first tick to the last.
func checkTicks(t *testing.T, lines []string) int {
	t.Helper()
	const form = "2006-01-02T15:04:05.000Z"
	count := starts(lines)
	if len(count) == 0 {
		t.Fatal("no tick was run")
	}
	seen := slices.Sorted(maps.Keys(count))
	first, err := time.Parse(form, seen[0])
	if err != nil {
		t.Fatal(err)
	}
	last, err := time.Parse(form, seen[len(seen)-1])
	if err != nil {
		t.Fatal(err)
	}
	ticks, twice, missed := 0, 0, 0
	for at := first; !at.After(last); at = at.Add(every) {
		ticks++
		switch n := count[at.Format(form)]; {
		case n == 0:
			missed++
			t.Errorf("no instance has run the tick of %s", at.Format(form))
		case n > 1:
			twice++
			t.Errorf("the tick of %s was run %d times", at.Format(form), n)
		}
	}
	t.Logf("%d ticks: %d run twice, %d missed", ticks, twice, missed)
	return ticks
}

// testScheduler runs an old and a new version of the scheduler at the same time. Several
// times it kills an instance during a job, and starts another instance.
func testScheduler(t *testing.T, w system) {
	ticks, killEvery := 6, 2
	if long {
		ticks, killEvery = 200, 5
	}
	args := []string{"--every", every.String(), "--takes", "200ms"}
	up := map[*process]string{}
	seen := map[*process]int{}
	var all []*process
	launch := func(version string) {
		p := w.run(t, "scheduler", append(args, "--version", version)...)
		up[p], all = version, append(all, p)
	}
	launch("blue")
	launch("green")

	kills, sinceKill := 0, 0
	for end := time.Now().Add(timeout + time.Duration(ticks)*every); ; time.Sleep(10 * time.Millisecond) {
		var lines []string
		for _, p := range all {
			lines = append(lines, p.output()...)
		}
		if len(starts(lines)) >= ticks {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("only %d ticks were run", len(starts(lines)))
		}
		for p, version := range up {
			out := p.output()
			for ; seen[p] < len(out); seen[p]++ {
				if !strings.Contains(out[seen[p]], " start token ") {
					continue
				}
				if sinceKill++; sinceKill == killEvery && up[p] != "" {
					p.kill()
					delete(up, p)
					launch(version)
					kills, sinceKill = kills+1, 0
				}
			}
		}
	}
	for p := range up {
		p.terminate(t)
	}
	var lines []string
	for _, p := range all {
		lines = append(lines, p.output()...)
	}
	checkTicks(t, lines)
	t.Logf("%d runners were killed in mid-job", kills)
	if kills == 0 {
		t.Error("nobody was killed")
	}
}

func TestSchedulerInOneProcess(t *testing.T) {
	t.Parallel()
	p := run(t, "scheduler", "--instances", "3", "--every", every.String(), "--takes", "100ms")
	for n, from := 0, 0; n < 6; n++ {
		_, from = p.await(t, from, " start token ")
	}
	p.terminate(t)
	checkTicks(t, p.output())
}

// TestSchedulerAndItsStore checks that a long job keeps its lock by renewal, that SIGTERM hands
// over the lock, and that the program reports a tick missed while the store was down. The job takes
// longer than the test, so the job still runs when the test reads the other program's output.
func TestSchedulerAndItsStore(t *testing.T) {
	t.Parallel()
	server, err := redisserver.Start(t.Context(), nil)
	servers.Keep(t, "redis", server, err)
	w := system{"redis", []string{"--backend", "redis", "--address", server.Addr(), "--plugin-dir", plugins}}
	ttl := 2 * every
	args := []string{"--every", every.String(), "--ttl", ttl.String(), "--takes", "1h"}

	first := w.run(t, "scheduler", args...)
	line, from := first.await(t, 0, " start token ")
	second := w.run(t, "scheduler", args...)
	time.Sleep(2*ttl + every)
	if n := len(starts(second.output())); n != 0 {
		t.Errorf("while the job of %s ran for more than two TTLs, it was started %d times elsewhere", line, n)
	}
	first.terminate(t)
	first.await(t, from, " stopped: ")
	_, from = second.await(t, 0, " start token ")

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	_, from = second.await(t, from, " stopped: ")
	time.Sleep(2 * every) // so that a tick is missed
	if err := server.Start(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	second.await(t, from, " start token ")
	if out := strings.Join(second.output(), "\n"); !strings.Contains(out, "missed, ticks 1: ") || !strings.Contains(out, "backend is unavailable") {
		t.Error("the ticks without a store were not told")
	}
	second.terminate(t)
}
