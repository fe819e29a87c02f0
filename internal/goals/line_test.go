package goals

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/stat"
)

// folder writes a result folder of the cells, each of which is one run, below
// dir.
func folder(t *testing.T, dir, name string, m record.Manifest, state record.State, cells ...record.Cell) {
	t.Helper()
	f, err := record.Create(filepath.Join(dir, name), m)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		if err := f.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(state); err != nil {
		t.Fatal(err)
	}
}

// manifest is that of a run of one scenario on redis and the given others.
func manifest(scenario string, others ...string) record.Manifest {
	m := record.Manifest{
		Started:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Plan:     record.Plan{Scenarios: []string{scenario}, MTLS: true, TTLms: 2000},
		Subjects: []record.Subject{{Name: "redis", Kind: record.KindPlugin, Fencing: "durable"}},
		Machine:  record.Machine{CPU: "a test's", Cores: 2, Go: "go1.26"},
	}
	for _, o := range others {
		m.Subjects = append(m.Subjects, record.Subject{Name: o, Kind: record.KindBaseline})
	}
	return m
}

func section(scenario, backend string, clients int) record.Section {
	return record.Section{Scenario: scenario, Backend: backend, Clients: clients}
}

// rates are runs of scenario acquire of redis and redislock at 64 callers.
func rates(pairs ...[2]float64) []record.Cell {
	var out []record.Cell
	for _, p := range pairs {
		for i, backend := range []string{"redis", "redislock"} {
			out = append(out, record.Cell{Section: section("acquire", backend, 64), Values: map[string]float64{"cycles/s": p[i]}})
		}
	}
	return out
}

func line(t *testing.T, dir, id string) Line {
	t.Helper()
	folders, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range Judge(append(Goals(), ScalingGoals()...), folders) {
		if l.ID == id {
			return l
		}
	}
	t.Fatalf("no goal %s", id)
	return Line{}
}

func TestRatioIsTheMedianOfRunsPaired(t *testing.T) {
	dir := t.TempDir()
	six := rates([2]float64{190, 100}, [2]float64{195, 100}, [2]float64{400, 200}, [2]float64{102.5, 50}, [2]float64{210, 100}, [2]float64{185, 100})
	folder(t, dir, "redis", manifest("acquire", "redislock"), record.StateDone, six...)
	l := line(t, dir, "P2/64")
	if got, want := l.String(), "P2/64 1.98 [1.85 2.10] goal >= 1.8 ok"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMissedRatio(t *testing.T) {
	dir := t.TempDir()
	folder(t, dir, "redis", manifest("acquire", "redislock"), record.StateDone, rates([2]float64{175, 100})...)
	if got, want := line(t, dir, "P2/64").String(), "P2/64 1.75 [-] goal >= 1.8 missed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNotRunCountsAsMissed: whatever the reason, it is told.
func TestNotRunCountsAsMissed(t *testing.T) {
	skipped := manifest("acquire", "redislock")
	skipped.Skipped = []string{"redislock: the server went away"}
	failed := manifest("acquire", "redislock")
	failed.Failure = "the disk is full"
	other := rates([2]float64{150, 100})
	for _, c := range other {
		delete(c.Values, "cycles/s")
		c.Values["grants/s"] = 1
	}
	for name, c := range map[string]struct {
		manifest record.Manifest
		state    record.State
		cells    []record.Cell
		want     string
	}{
		"other scenario":       {manifest("contend", "redislock"), record.StateDone, nil, "no folder has acquire of redis, 64 clients beside acquire of redislock, 64 clients"},
		"no baseline":          {manifest("acquire"), record.StateDone, rates([2]float64{150, 100})[:1], "beside acquire of redislock"},
		"baseline left out":    {skipped, record.StateDone, rates([2]float64{150, 100})[:1], "the server went away"},
		"interrupted":          {manifest("acquire", "redislock"), record.StateInterrupted, rates([2]float64{150, 100}), "run is interrupted"},
		"failed":               {failed, record.StateFailed, rates([2]float64{150, 100}), "the disk is full"},
		"without the quantity": {manifest("acquire", "redislock"), record.StateDone, other, "has no cycles/s in run 1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			folder(t, dir, "run", c.manifest, c.state, c.cells...)
			l := line(t, dir, "P2/64")
			if l.OK || !strings.Contains(l.Missing, c.want) || !strings.HasSuffix(l.String(), "goal >= 1.8 missed") {
				t.Errorf("got %q, want one with %q", l, c.want)
			}
		})
	}
}

// TestTokensAreNotMixed: redlock without tokens does not answer for the goals.
func TestTokensAreNotMixed(t *testing.T) {
	dir := t.TempDir()
	for fencing, rate := range map[string]float64{"none": 500, "quorum": 300} {
		m := manifest("acquire", "redsync-nodes")
		m.Subjects = append(m.Subjects, record.Subject{Name: "redlock", Kind: record.KindPlugin, Fencing: fencing})
		folder(t, dir, fencing, m, record.StateDone,
			record.Cell{Section: section("acquire", "redlock", 64), Values: map[string]float64{"cycles/s": rate}},
			record.Cell{Section: section("acquire", "redsync-nodes", 64), Values: map[string]float64{"cycles/s": 100}})
	}
	if l := line(t, dir, "P3/64"); l.Measured.Center != 3 {
		t.Errorf("got %v", l)
	}
}

// TestWithinARun: two values of one run are compared before the median is taken.
func TestWithinARun(t *testing.T) {
	dir := t.TempDir()
	var cells []record.Cell
	for _, n := range []float64{1, 2, 4} {
		c := record.Section{Scenario: "contend", Backend: "redis", Mode: "forced", Hosts: 2, Clients: 1, HoldNs: int64(5 * time.Millisecond)}
		cells = append(cells, record.Cell{Section: c, Values: map[string]float64{
			"commands/grant": 10 * n, "sent-commands/grant": 3, "max-ns/wait": 6 * n, "p50-ns/wait": 2 * n, "server-ns/grant": 2e5,
		}})
	}
	folder(t, dir, "hosts", manifest("contend"), record.StateDone, cells...)
	for id, want := range map[string]string{
		"P7/redis/2/scripted": "17.0 [-] goal <= 15 missed", "P7/redis/2/wait": "3.00 [-] goal <= 3 ok", "P7/redis/2/server": "200 [-] us goal <= 150 us missed",
	} {
		if l := line(t, dir, id); l.String() != id+" "+want {
			t.Errorf("got %q, want %s", l, want)
		}
	}
}

func TestTakeoverIsJudgedOnItsP99(t *testing.T) {
	dir := t.TempDir()
	var took []int64
	for i := range 200 {
		took = append(took, int64(i)*1e6)
	}
	killed := record.Cell{Section: section("takeover", "redis", 8), Latencies: map[string][]int64{"takeover": took}}
	killed.Mode, killed.Hosts = "kill-host", 2
	lost := record.Cell{
		Section: section("takeover", "redis", 8), Latencies: map[string][]int64{"overdue": took},
		// A round trip of 200 ms above the TTL of 2 s, and the margin of 50 ms.
		Values: map[string]float64{"band-high-ns/takeover": 2250e6},
	}
	lost.Mode, lost.Hosts = "kill-machine", 2
	folder(t, dir, "takeover", manifest("takeover"), record.StateDone, killed, lost)
	if l := line(t, dir, "P8/redis"); l.OK || l.Measured.Center < 195 || l.Measured.Center > 199 || l.Measured.Hi < 199 {
		t.Errorf("of 0 to 199 ms: %v", l)
	}
	if l := line(t, dir, "P9/redis"); !l.OK || l.Measured.Center > 0 {
		t.Errorf("all within the round trip: %v", l)
	}
}

// TestLossesAreNotAveraged: one lost lease of one run misses the goal.
func TestLossesAreNotAveraged(t *testing.T) {
	dir := t.TempDir()
	var cells []record.Cell
	for _, lost := range []float64{0, 0, 1, 0, 0, 0} {
		c := record.Cell{Section: section("footprint", "redis", 64), Values: map[string]float64{"lost-leases": lost}}
		c.HoldNs = 60e9
		cells = append(cells, c)
	}
	folder(t, dir, "held", manifest("footprint"), record.StateDone, cells...)
	if l := line(t, dir, "P10/losses"); l.OK || l.Measured.Center != 1 {
		t.Errorf("got %v", l)
	}
}

func TestScaling(t *testing.T) {
	dir := t.TempDir()
	var cells []record.Cell
	tail := make([]int64, 1000) // enough for a p99
	for _, p := range []struct {
		clients   int
		rate, p99 float64
	}{{1, 100, 1e6}, {64, 1000, 6e6}, {1024, 800, 200e6}} {
		for i := range tail {
			tail[i] = int64(p.p99)
		}
		cells = append(cells, record.Cell{
			Section: section("throughput", "redis", p.clients), Values: map[string]float64{"cycles/s": p.rate},
			Latencies: map[string][]int64{"acquire": append([]int64(nil), tail...)},
		})
	}
	folder(t, dir, "scaling", manifest("throughput"), record.StateDone, cells...)
	// One without the end of the curve, which is later than that with it.
	var overHosts []record.Cell
	for _, c := range []struct{ hosts, clients, rate int }{{0, 256, 1000}, {2, 128, 900}, {4, 64, 700}, {2, 256, 950}} {
		s := section("throughput", "redis", c.clients)
		s.Hosts = c.hosts
		overHosts = append(overHosts, record.Cell{Section: s, Values: map[string]float64{"cycles/s": float64(c.rate)}})
	}
	later := manifest("throughput")
	later.Started = later.Started.Add(time.Hour)
	folder(t, dir, "scaling-hosts", later, record.StateDone, overHosts...)

	if got, want := line(t, dir, "scaling/redis").String(), "scaling/redis 0.80 [-] goal >= 0.85 missed (1000 at 64 clients, 800 at 1024)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// p99 grew 33 times from the peak, and the callers 16 times.
	if l := line(t, dir, "scaling/redis/p99"); l.OK || fmt.Sprintf("%.1f", l.Measured.Center) != "2.1" || !strings.HasSuffix(l.Note, "ms at 1024") {
		t.Errorf("p99 grew 33 times: %v", l)
	}
	folders, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, l := range Judge(Hosts(), folders)[:4] {
		shown = append(shown, l.Shown())
	}
	want := []string{
		"redis: 2 hosts of 128 clients / one host of 256: cycles/s 0.90 [-]",
		"redis: 4 hosts of 64 clients / one host of 256: cycles/s 0.70 [-]",
		"redis: 2 hosts of 256 clients / one host of 256: cycles/s 0.95 [-]",
		"redis: 4 hosts of 256 clients / one host of 256: cycles/s: not run (no folder has throughput of redis, 4 hosts, 256 clients beside throughput of redis, 256 clients)",
	}
	if !slices.Equal(shown, want) {
		t.Errorf("over hosts:\n%s", strings.Join(shown, "\n"))
	}
	var page bytes.Buffer
	if err := WritePage(&page, folders, Judge(Goals(), folders), "0123456789ab"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"(1000 at 64 clients, 800 at 1024) | 0.80 [-] | >= 0.85 | missed |", "| redis: 4 hosts of 64 clients / one host of 256: cycles/s | 0.70 [-] |", "| redis | 1024 | 800 |"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, page.String())
		}
	}
}

func TestPage(t *testing.T) {
	dir := t.TempDir()
	folder(t, dir, "redis", manifest("acquire", "redislock"), record.StateDone, rates([2]float64{200, 100})...)
	noise := manifest("acquire", "redis-vs", "plugin-call")
	noise.Subjects[1].BuildOf = "redis"
	folder(t, dir, "noise", noise, record.StateDone,
		record.Cell{Section: section("acquire", "redis", 64), Values: map[string]float64{"cycles/s": 99}},
		record.Cell{Section: section("acquire", "redis-vs", 64), Values: map[string]float64{"cycles/s": 100}},
		record.Cell{Section: section("floor", "plugin-call", 1), Values: map[string]float64{"p50-ns/call": 15000}})
	folders, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := WritePage(&page, folders, Judge(Goals(), folders), "0123456789ab"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| P2/64 | redis / redislock, 64 clients: cycles/s | 2.00 [-] | >= 1.8 | ok |",
		"| P1 | redis / redislock, 1 client: acquire p50 | not run (", "2 cores of a test's", " commit 0123456789ab, ", "| redislock | baseline |",
		"| redis / the same again, clients=64: cycles/s | 0.99 [-] |",
		"| a call through a plugin that does nothing, clients=1: p50 | 15.0 [-] us |",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, page.String())
		}
	}
	if strings.Contains(page.String(), "redis-vs |") {
		t.Errorf("the page shows the second copy as a library:\n%s", page.String())
	}
}

func TestLoadOfNothing(t *testing.T) {
	if _, err := Load(t.TempDir()); !errors.Is(err, ErrNoFolders) {
		t.Errorf("got %v", err)
	}
}

// TestGoalsAreDistinct: an id names one goal.
func TestGoalsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range append(Goals(), ScalingGoals()...) {
		if g.ID == "" || g.What == "" || seen[g.ID] {
			t.Errorf("goal %q: %q", g.ID, g.What)
		}
		seen[g.ID] = true
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{123.4: "123", 12.34: "12.3", 1.234: "1.23", 0.0123: "0.012", 0: "0.00", -20: "-20.0"} {
		if got := number(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
	if got := (Line{Measured: stat.Estimate{}}).Figure(); got != "0.00 [-]" {
		t.Errorf("got %q", got)
	}
}
