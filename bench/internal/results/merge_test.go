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

// repeated writes a folder of redis, with a cell for each run as fill changes it.
func repeated(t *testing.T, m Manifest, change func(*Manifest), state State, fill func(run int, c *Cell)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "part")
	m.Plan.Backends, m.Plan.Scenarios = []string{"redis"}, []string{"acquire"}
	m.Subjects = []Subject{{Name: "redis", Kind: KindPlugin}}
	if change != nil {
		change(&m)
	}
	f, err := Create(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	for run := range m.Plan.Runs {
		c := sampleCell("redis", 2000)
		c.Run, c.Latencies = run+1, map[string][]int64{}
		fill(run, &c)
		err = errors.Join(err, f.Add(c))
	}
	if err := errors.Join(err, f.Close(state)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// part writes a folder of some runs and returns the latencies in it.
func part(t *testing.T, change func(*Manifest), runs int, state State) (dir string, took []int64) {
	t.Helper()
	m := Manifest{Started: time.Now(), Elapsed: 2, Binaries: map[string]string{"lockplugin-redis": "aa"}, Plan: Plan{Runs: runs, Seed: uint64(runs)}}
	r := rand.New(rand.NewPCG(uint64(runs), 1))
	dir = repeated(t, m, change, state, func(_ int, c *Cell) {
		for range 2000 {
			c.Latencies["acquire"] = append(c.Latencies["acquire"], int64(runs)*100_000+r.Int64N(1e6))
		}
		took = append(took, c.Latencies["acquire"]...)
	})
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
	err = ScanEvents(out, func(s Section, attempts []Attempt) error {
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
	short := other(nil, StateDone)
	cut(t, filepath.Join(short, EventsFile), 5)
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
		"cut":           {short, ErrIncomplete},
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

// togetherPart writes one part of several: its cells began met after its start.
func togetherPart(t *testing.T, number int, seed, rate float64, change func(*Manifest), met ...time.Duration) string {
	t.Helper()
	m := Manifest{
		Started: time.Unix(1000, int64(number)), Elapsed: 5, Binaries: map[string]string{},
		Plan: Plan{Runs: len(met), Seed: uint64(seed), Parts: 2}, Rendezvous: &Rendezvous{ID: "m", Part: number},
	}
	return repeated(t, m, change, StateDone, func(run int, c *Cell) {
		at := int64(met[run])
		c.MetNs = at
		for i := range c.Attempts {
			a := &c.Attempts[i]
			a.Asked, a.Answered = a.Asked+at, a.Answered+at
			if a.End == EndReleased {
				a.Ended, a.Done = a.Ended+at, a.Done+at
			}
		}
		for i := range 600 {
			c.Latencies["acquire"] = append(c.Latencies["acquire"], int64(number)*1_000_000+int64(i))
		}
		c.Values = map[string]float64{"cycles/s": rate, "max-ns/acquire": rate, "commands/grant": rate, "band-low-ns/takeover": 7}
	})
}

// TestMergeParts: rates of parts are added up run by run, percentiles are of
// all latencies, and each part's own rates are kept. Their clocks may differ.
func TestMergeParts(t *testing.T) {
	a := togetherPart(t, 1, 9, 100, nil, time.Second, 3*time.Second)
	b := togetherPart(t, 2, 9, 300, func(m *Manifest) { m.Started = m.Started.Add(time.Hour) }, 2*time.Second, 4*time.Second)
	out := filepath.Join(t.TempDir(), "all")
	if err := MergeParts(out, a, b); err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(out)
	if err != nil {
		t.Fatal(err)
	}
	if m.Plan.Runs != 2 || m.Rendezvous != nil || m.Together == nil || !m.Together.Met || m.Together.Overlap < 0.99 || m.Together.Clocks < 3600 {
		t.Errorf("%+v, %+v", m, m.Together)
	}
	name := "Acquire/backend=redis/clients=8"
	if len(m.Parts) != 2 || !slices.Equal(m.Parts[0].Rates[name], []float64{100, 100}) || !slices.Equal(m.Parts[1].Rates[name], []float64{300, 300}) {
		t.Errorf("%+v", m.Parts)
	}
	results, err := ReadResults(out)
	if err != nil || len(results) != 2 {
		t.Fatal(results, err)
	}
	for _, r := range results {
		if r.Name() != name || r.Cycles != 4000 || r.Values["cycles/s"] != 400 || r.Values["max-ns/acquire"] != 300 || r.Values["band-low-ns/takeover"] != 7 {
			t.Errorf("%+v", r)
		}
		if p50, p90 := r.Values["p50-ns/acquire"], r.Values["p90-ns/acquire"]; p50 > 1.01e6 || p90 < 1.99e6 || p90 > 2.01e6 {
			t.Errorf("p50 %v, p90 %v of 600 of 1 ms and 600 of 2 ms", p50, p90)
		}
		if _, ok := r.Values["commands/grant"]; ok {
			t.Error("what each part counted of the commands of all is shown")
		}
	}
	all, err := ReadHistograms(out)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	for _, h := range all {
		if h.TotalCount() != 2400 {
			t.Errorf("%d latencies", h.TotalCount())
		}
	}
}

// TestMergePartsByClock: parts that did not meet are held against the clocks of
// their machines.
func TestMergePartsByClock(t *testing.T) {
	alone := func(number int, later time.Duration) string {
		return togetherPart(t, number, 9, 100, func(m *Manifest) {
			m.Rendezvous, m.Plan.Parts, m.Started = nil, 0, m.Started.Add(later)
		}, time.Second)
	}
	first := alone(1, 0) // its cell takes about 5 ms
	if err := MergeParts(filepath.Join(t.TempDir(), "out"), first, alone(2, 100*time.Microsecond)); err != nil {
		t.Error(err)
	}
	for later, want := range map[time.Duration]string{2 * time.Millisecond: "% of its time", time.Minute: "before"} {
		out := filepath.Join(t.TempDir(), "out")
		err := MergeParts(out, first, alone(2, later))
		if !errors.Is(err, ErrApart) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v later: %v", later, err)
		}
		if err := Vacant(out); err != nil {
			t.Errorf("something is left: %v", err)
		}
	}
}

func TestMergePartsRefuses(t *testing.T) {
	second := func(change func(*Manifest), met ...time.Duration) string {
		return togetherPart(t, 2, 9, 100, change, met...)
	}
	const s = time.Second
	good, three := togetherPart(t, 1, 9, 100, nil, s, 2*s), togetherPart(t, 1, 9, 100, nil, s, 2*s, 3*s)
	for name, tt := range map[string]struct {
		dirs []string
		want error
	}{
		"another rendezvous": {[]string{good, second(func(m *Manifest) { m.Rendezvous.ID = "n" }, s, 2*s)}, ErrApart},
		"no rendezvous":      {[]string{good, second(func(m *Manifest) { m.Rendezvous = nil }, s, 2*s)}, ErrApart},
		"another seed":       {[]string{good, second(func(m *Manifest) { m.Plan.Seed = 8 }, s, 2*s)}, ErrApart},
		"fewer runs":         {[]string{good, second(nil, s)}, ErrPlans},
		"merged":             {[]string{good, second(func(m *Manifest) { m.Parts = []Part{{}, {}} }, s, 2*s)}, ErrPlans},
		"one late":           {[]string{three, second(nil, s, 2*s+4*time.Millisecond, 3*s)}, ErrApart}, // by less than its cell takes
		"a third":            {[]string{good, second(nil, s, 2*s), togetherPart(t, 3, 9, 100, nil, s, 2*s)}, ErrIncomplete},
	} {
		if err := MergeParts(filepath.Join(t.TempDir(), "out"), tt.dirs...); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Merge(filepath.Join(t.TempDir(), "out"), good, second(nil, s, 2*s)); !errors.Is(err, ErrPlans) {
		t.Errorf("parts as repetitions: %v", err)
	}
}
