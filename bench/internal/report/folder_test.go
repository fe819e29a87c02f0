package report

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
)

const testRuns = 6

var testSubjects = []results.Subject{
	{Name: "redis", Kind: results.KindPlugin, Durability: "appendfsync off", Fencing: "durable", Scope: "shared", Reference: "redislock", Server: "Redis 7", SurvivesCrash: new(false)},
	{Name: "redislock", Kind: results.KindBaseline, Durability: "appendfsync off", Fencing: "none", Scope: "shared", Reference: "redislock", Without: []string{"token", "renewal", "release at a crash"}},
	{Name: "etcd", Kind: results.KindPlugin, Durability: "raft", Fencing: "strict", Scope: "shared", SurvivesCrash: new(true)},
	{Name: "memory", Kind: results.KindPlugin, Durability: "ends with its process", Fencing: "durable", Scope: "host"},
	{Name: "redis-ping", Kind: results.KindFloor},
}

func written(t *testing.T, cells []results.Cell) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	f, err := results.Create(dir, results.Manifest{
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Plan: results.Plan{
			Runs: testRuns, Measurems: 200, Seed: 42, TTLms: 10_000, MTLS: true,
			Backends: []string{"redis", "etcd"}, Scenarios: []string{"acquire"}, OwnTargets: []string{"etcd"},
		},
		Machine:  results.Machine{Cores: 2, CPU: "<a CPU>"},
		Subjects: testSubjects,
		Skipped:  []string{"mysql: not installed"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		err = errors.Join(err, f.Add(c))
	}
	if err := errors.Join(err, f.Close(results.StateDone)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func reported(t *testing.T, cells []results.Cell) Report {
	t.Helper()
	r, err := Load(written(t, cells))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// acquires returns measurements of six runs in which backend redis takes twice as long as baseline
// redislock. If overlap is set, redis also grants one lock to two holders at the same time.
func acquires(clients int, overlap bool) []results.Cell {
	var cells []results.Cell
	for run := range testRuns {
		for i, s := range []string{"redislock", "redis"} {
			cells = append(cells, cycles(s, clients, run, int64(i+1)*int64(100_000+run*1000), overlap && s == "redis"))
		}
	}
	return cells
}

func section(scenario, backend string, clients, run int) results.Section {
	s := results.Section{CellName: results.CellName{Backend: backend, Scenario: scenario, Clients: clients}, Run: run + 1, Names: []string{"a"}}
	for _, sub := range testSubjects {
		if sub.Name == backend {
			s.Kind, s.Fencing = sub.Kind, sub.Fencing
		}
	}
	return s
}

func cycles(backend string, clients, run int, ns int64, overlap bool) results.Cell {
	c := results.Cell{
		Section: section("acquire", backend, clients, run),
		Cycles:  1, Latencies: map[string][]int64{"acquire": {ns}}, Values: map[string]float64{"cycles/s": 1e9 / float64(ns)},
	}
	at := int64(clients)*1e9 + int64(run)*1e6
	c.Attempts = []results.Attempt{{Asked: at, Answered: at + ns, Ended: at + 2*ns, Done: at + 3*ns, Token: uint64(clients*100 + run), Outcome: results.Granted, End: results.EndReleased}}
	if overlap {
		second := c.Attempts[0]
		second.Client, second.Token = 1, second.Token+1
		c.Attempts = append(c.Attempts, second)
	}
	return c
}

// The values in ms are the times, in milliseconds, from the end of each lease to the next grant.
func takeovers(backend, mode string, run int, ms ...int64) results.Cell {
	c := results.Cell{Section: section("takeover", backend, 1, run), Cycles: len(ms), Latencies: map[string][]int64{}, Values: map[string]float64{}}
	c.Mode, c.Hosts = mode, 2
	at := int64(1e12) + int64(run)*1e11
	grant := results.Attempt{Asked: at, Answered: at + 1e6, Outcome: results.Granted, Token: uint64(at)}
	for i, wait := range ms {
		grant.Ended, grant.End = grant.Answered+1e9, results.EndKilled
		grant.Done = grant.Ended
		c.Attempts = append(c.Attempts, grant)
		c.Latencies["takeover"] = append(c.Latencies["takeover"], wait*1e6)
		next := grant.Ended + wait*1e6
		grant = results.Attempt{Client: int32(i) + 1, Asked: at, Answered: next, Outcome: results.Granted, Token: uint64(next)}
	}
	c.Attempts = append(c.Attempts, grant)
	return c
}

// loaded caches results of function everything. A test must not change the Reports in it.
var loaded = map[bool]Report{}

// everything returns a report with most of the known scenarios, and with an unknown scenario.
func everything(t *testing.T, overlap bool) Report {
	t.Helper()
	if r, ok := loaded[overlap]; ok {
		return r
	}
	cells := append(acquires(1, false), acquires(64, overlap)...)
	for run := range testRuns {
		for i, b := range []string{"etcd", "redis"} {
			acquire := cycles(b, 8, run, int64(i+3)*int64(1e5), false)
			contend := results.Cell{Section: section("contend", b, 8, run), Latencies: map[string][]int64{"handoff": {int64(i+1) * 1e6}}, Values: map[string]float64{"jain": 0.9}}
			contend.Hosts = 2
			more := contend
			more.Clients = 32
			unknown := results.Cell{Section: section("footprint", b, 1, run), Latencies: map[string][]int64{}, Values: map[string]float64{"rss-bytes": 20e6}}
			cells = append(cells, acquire, contend, more, unknown, takeovers(b, "kill-host", run, int64(5+i), int64(10+i)), takeovers(b, "kill-machine", run, 7000, 8000))
		}
		floor := results.Cell{Section: section("floor", "redis-ping", 1, run), Latencies: map[string][]int64{"call": {25_000}}, Values: map[string]float64{"calls/s": 1e4}}
		cells = append(cells, floor)
	}
	loaded[overlap] = reported(t, cells)
	return loaded[overlap]
}
