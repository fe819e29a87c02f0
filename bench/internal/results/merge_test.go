package results

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// togetherPart writes the folder of one part. Its run i begins its cells at the time met[i]. If the
// manifest has a failed cell, the baseline has no figures in the first run.
func togetherPart(t *testing.T, number int, rate float64, change func(*Manifest), met ...time.Duration) string {
	t.Helper()
	m := Manifest{
		Started: time.Unix(1000, int64(number)), State: StateDone, Elapsed: 5, Binaries: map[string]string{"lockplugin-redis": "aa"},
		Plan:       Plan{Runs: len(met), Parts: 2, Backends: []string{"redis"}, Scenarios: []string{"acquire"}},
		Subjects:   []Subject{{Name: "redis", Kind: KindPlugin}},
		Rendezvous: &Rendezvous{ID: "m", Part: number},
	}
	if change != nil {
		change(&m)
	}
	dir := filepath.Join(t.TempDir(), "part")
	f, err := Create(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	for run, from := range met {
		c := sampleCell("redis", 2000)
		at := int64(from)
		c.Run, c.MetNs, c.Latencies = run+1, at, map[string][]int64{}
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
		err = errors.Join(err, f.Add(c))
		c.Backend, c.Kind, c.Interrupted = "redislock", KindBaseline, run == 0 && len(m.Failed) > 0
		err = errors.Join(err, f.Add(c))
	}
	if err := errors.Join(err, f.Close(m.State)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestMerge checks that each run adds the rates of all parts, that percentiles are over all
// latencies, and that each part's own rates are kept. The clocks of the parts differ. A baseline
// that failed in one part must be left out, in any order of the parts.
func TestMerge(t *testing.T) {
	a := togetherPart(t, 1, 100, nil, time.Second, 3*time.Second)
	b := togetherPart(t, 2, 300, func(m *Manifest) {
		m.Started, m.Notes, m.Failed = m.Started.Add(time.Hour), []string{"busy"}, []FailedCell{{Backend: "redislock"}}
	}, 2*time.Second, 4*time.Second)
	out := filepath.Join(t.TempDir(), "all")
	if err := errors.Join(Merge(filepath.Join(t.TempDir(), "turned"), b, a), Merge(out, a, b)); err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(out)
	if err != nil {
		t.Fatal(err)
	}
	if m.Plan.Runs != 2 || len(m.Failed) != 1 || len(m.Skipped) != 1 || !slices.Equal(m.Notes, []string{"part 2: busy"}) || m.Rendezvous != nil || m.Together == nil || m.Together.Overlap < 0.99 || m.Together.Clocks < 3600 {
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

func TestMergeRefuses(t *testing.T) {
	second := func(change func(*Manifest), met ...time.Duration) string {
		return togetherPart(t, 2, 100, change, met...)
	}
	const s = time.Second
	good, three := togetherPart(t, 1, 100, nil, s, 2*s), togetherPart(t, 1, 100, nil, s, 2*s, 3*s)
	short := second(nil, s, 2*s)
	cut(t, filepath.Join(short, EventsFile), 5)
	for name, tt := range map[string]struct {
		dirs []string
		want error
	}{
		"another rendezvous": {[]string{good, second(func(m *Manifest) { m.Rendezvous.ID = "n" }, s, 2*s)}, ErrApart},
		"no rendezvous":      {[]string{good, second(func(m *Manifest) { m.Rendezvous = nil }, s, 2*s)}, ErrApart},
		"another build":      {[]string{good, second(func(m *Manifest) { m.Binaries["lockplugin-redis"] = "bb" }, s, 2*s)}, ErrPlans},
		"itself":             {[]string{good, good}, ErrPlans},
		"interrupted":        {[]string{good, second(func(m *Manifest) { m.State = StateInterrupted }, s, 2*s)}, ErrIncomplete},
		"cut":                {[]string{good, short}, ErrIncomplete},
		"foreign":            {[]string{good, t.TempDir()}, ErrNotAFolder},
		"one late":           {[]string{three, second(nil, s, 2*s+4*time.Millisecond, 3*s)}, ErrApart}, // a cell is late by less than its length
		"another number":     {[]string{three, second(nil, s, 2*s)}, ErrIncomplete},
		"a third":            {[]string{good, second(nil, s, 2*s), togetherPart(t, 3, 100, nil, s, 2*s)}, ErrIncomplete},
	} {
		out := filepath.Join(t.TempDir(), "out")
		if err := Merge(out, tt.dirs...); !errors.Is(err, tt.want) {
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
