package results

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// part writes a folder of some runs and returns the latencies in it.
func part(t *testing.T, change func(*Manifest), runs int, state State) (dir string, took []int64) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "part")
	m := Manifest{
		Started: time.Now(), Elapsed: 2, Binaries: map[string]string{"lockplugin-redis": "aa"},
		Plan:     Plan{Backends: []string{"redis"}, Scenarios: []string{"acquire"}, Runs: runs, Seed: uint64(runs)},
		Subjects: []Subject{{Name: "redis", Kind: KindPlugin}},
	}
	if change != nil {
		change(&m)
	}
	f, err := Create(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(uint64(runs), 1))
	for run := range runs {
		c := sampleCell("redis", 2000)
		c.Run, c.Latencies = run+1, map[string][]int64{}
		for range 2000 {
			c.Latencies["acquire"] = append(c.Latencies["acquire"], int64(runs)*100_000+r.Int64N(1e6))
		}
		took = append(took, c.Latencies["acquire"]...)
		if err := f.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(state); err != nil {
		t.Fatal(err)
	}
	return dir, took
}

func benchmarks(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, ResultsFile))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(b), "\n"), func(s string) bool { return !strings.HasPrefix(s, "Benchmark") })
}

func TestMerge(t *testing.T) {
	a, tookA := part(t, func(m *Manifest) { m.Notes = []string{"of both"} }, 2, StateDone)
	b, tookB := part(t, func(m *Manifest) { m.Skipped, m.Notes = []string{"etcd"}, []string{"of both", "busy"} }, 3, StateDone)
	out := filepath.Join(t.TempDir(), "both")
	if err := Merge(out, a, b); err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(out)
	if err != nil {
		t.Fatal(err)
	}
	if m.State != StateDone || m.Plan.Runs != 5 || m.Elapsed != 4 || len(m.Parts) != 2 || m.Parts[1].Runs != 3 || m.Parts[0].Seed != 2 || !slices.Equal(m.Skipped, []string{"etcd"}) ||
		!slices.Equal(m.Notes, []string{"of both", "part 2: busy"}) {
		t.Errorf("%+v", m)
	}
	if got, want := benchmarks(t, out), append(benchmarks(t, a), benchmarks(t, b)...); !slices.Equal(got, want) {
		t.Errorf("the lines of results are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var runs []int
	f, err := os.Open(filepath.Join(out, EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = ReadEvents(f, func(s Section, attempts []Attempt) error {
		runs = append(runs, s.Run)
		if !slices.Equal(attempts, sampleCell("redis", 2000).Attempts) {
			t.Errorf("the attempts of run %d differ", s.Run)
		}
		return nil
	})
	if err != nil || !slices.Equal(runs, []int{1, 2, 3, 4, 5}) {
		t.Errorf("runs %v, %v", runs, err)
	}
	all, err := ReadHistograms(out)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	pooled := slices.Sorted(slices.Values(append(tookA, tookB...)))
	for _, h := range all {
		for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
			want := Quantile(pooled, q)
			if got := float64(h.ValueAtQuantile(100 * q)); got < want*0.998 || got > want*1.002 {
				t.Errorf("quantile %v is %v, that of all latencies %v", q, got, want)
			}
		}
	}
	c, _ := part(t, func(m *Manifest) { m.Notes = []string{"held back"} }, 4, StateDone)
	again := filepath.Join(t.TempDir(), "all")
	if err := Merge(again, out, c); err != nil {
		t.Fatal(err)
	}
	if m, err := ReadManifest(again); err != nil || len(m.Parts) != 3 || m.Plan.Runs != 9 || !slices.Contains(m.Notes, "part 2: busy") || !slices.Contains(m.Notes, "part 3: held back") {
		t.Errorf("%+v, %v", m.Parts, err)
	}
}

func TestMergeRefuses(t *testing.T) {
	good, _ := part(t, nil, 2, StateDone)
	other := func(change func(*Manifest), state State) string {
		dir, _ := part(t, change, 1, state)
		return dir
	}
	cut := other(nil, StateDone)
	events := filepath.Join(cut, EventsFile)
	info, err := os.Stat(events)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(events, info.Size()-5); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		dir  string
		want error
	}{
		"another plan":  {other(func(m *Manifest) { m.Plan.TTLms = 5 }, StateDone), ErrPlans},
		"another build": {other(func(m *Manifest) { m.Binaries = map[string]string{"lockplugin-redis": "bb"} }, StateDone), ErrPlans},
		"mutual TLS":    {other(func(m *Manifest) { m.Plan.MTLS = true }, StateDone), ErrPlans},
		"elsewhere":     {other(func(m *Manifest) { m.Plan.Env = "compose" }, StateDone), ErrPlans},
		"itself":        {good, ErrPlans},
		"interrupted":   {other(nil, StateInterrupted), ErrIncomplete},
		"cut":           {cut, ErrIncomplete},
		"foreign":       {t.TempDir(), ErrNotAFolder},
	} {
		out := filepath.Join(t.TempDir(), "out")
		if err := Merge(out, good, tt.dir); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err := Vacant(out); err != nil {
			t.Errorf("%s: something is left: %v", name, err)
		}
	}
	if err := Merge(good, good, good); !errors.Is(err, ErrNotEmpty) {
		t.Error(err)
	}
}
