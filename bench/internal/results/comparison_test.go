package results

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// run describes a result folder for a test to write.
type run struct {
	plan     Plan
	together *Together
	subjects []Subject
	state    State
	lines    int                // lines of each subject; 0 means one for each run of the plan
	factor   map[string]float64 // factor for the latencies, by subject; 0 means 1
	slow     map[string]int     // number of runs with too few samples for a p99, by subject
	failed   map[string]int     // number of runs without figures, by subject
}

// write writes the folder. By default it has two subjects. These have the same number of clients,
// and latencies that rise from run to run.
func (r run) write(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	r.plan.Runs, r.state = cmp.Or(r.plan.Runs, 10), cmp.Or(r.state, StateDone)
	r.plan.Backends = []string{"redis"}
	if r.subjects == nil {
		r.subjects = []Subject{{Name: "redis", Kind: KindPlugin}, {Name: "redislock", Kind: KindBaseline}}
	}
	m := Manifest{Started: time.Now(), Plan: r.plan, Together: r.together, Subjects: r.subjects}
	for name := range r.failed {
		m.Failed = append(m.Failed, FailedCell{Backend: name})
	}
	f, err := Create(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	for i := range cmp.Or(r.lines, r.plan.Runs) {
		for _, s := range r.subjects {
			factor := cmp.Or(r.factor[s.Name], 1)
			var took []int64
			samples := 600
			if i < r.slow[s.Name] {
				samples = 100
			}
			for n := range samples {
				took = append(took, int64(factor*float64(100_000+1000*i+10*n)))
			}
			err = errors.Join(err, f.Add(Cell{
				Section: Section{CellName: CellName{Backend: s.Name, Scenario: "acquire", Clients: 8}, Kind: s.Kind, Run: i + 1, Interrupted: i < r.failed[s.Name]},
				Cycles:  600, Elapsed: time.Second, Latencies: map[string][]int64{"acquire": took},
				Values: map[string]float64{"cycles/s": 600 / factor, "max-ns/acquire": float64(slices.Max(took)), "lost-leases": float64(i / 9)},
			}))
		}
	}
	if err := errors.Join(err, f.Close(r.state)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func compared(t *testing.T, before, after run) Comparison {
	t.Helper()
	c, err := Folders(before.write(t), after.write(t), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFolders(t *testing.T) {
	c := compared(t, run{}, run{factor: map[string]float64{"redis": 1.2}})
	worse := map[string]bool{}
	for _, d := range c.Rows {
		if d.Control != strings.Contains(d.Cell, "redislock") {
			t.Errorf("%s: control %v", d.Cell, d.Control)
		}
		if d.Worse() {
			worse[d.Cell+" "+d.Unit] = true
		}
	}
	for _, want := range []string{"p50-ns/acquire", "p99-ns/acquire", "cycles/s"} {
		if !worse["Acquire/backend=redis/clients=8 "+want] {
			t.Errorf("%s is not worse: %v", want, worse)
		}
	}
	if len(worse) != 3 || len(c.Warnings) != 0 {
		t.Errorf("worse: %v; warnings: %q", worse, c.Warnings)
	}
	c = compared(t, run{}, run{factor: map[string]float64{"redislock": 1.5}})
	if len(c.Warnings) == 0 || !strings.Contains(c.Warnings[0], "the machine has changed") {
		t.Errorf("a baseline that has changed: %q", c.Warnings)
	}
	few, elsewhere := run{plan: Plan{Runs: 3}}, run{plan: Plan{Env: "compose", OwnTargets: []string{"redis"}}}
	c = compared(t, run{}, elsewhere)
	if len(c.Warnings) != 2 || !strings.HasSuffix(c.Warnings[1], "own targets [] and [redis]") {
		t.Errorf("servers in another place: %q", c.Warnings)
	}
	c = compared(t, few, few)
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "at least 5") {
		t.Errorf("three runs: %q", c.Warnings)
	}
}

func TestFoldersRefuse(t *testing.T) {
	good := run{}.write(t)
	cutBy := func(n int64) string {
		dir := run{}.write(t)
		cut(t, filepath.Join(dir, ResultsFile), n)
		return dir
	}
	if _, err := Folders(good, good, "/backend:redis ("); !errors.Is(err, ErrFilter) {
		t.Error(err)
	}
	for name, tt := range map[string]struct {
		other string
		want  error
		says  string
	}{
		"another plan": {run{plan: Plan{Clients: []int{1, 8}}}.write(t), ErrPlans, "clients [] and [1 8]"},
		"merged":       {run{together: &Together{}}.write(t), ErrPlans, "one folder has all the parts"},
		"interrupted":  {run{state: StateInterrupted, lines: 3}.write(t), ErrIncomplete, "interrupted"},
		"killed":       {run{state: StateRunning}.write(t), ErrIncomplete, "running"},
		"cut":          {cutBy(400), ErrIncomplete, "of 10 runs of Acquire/backend=redis/clients=8"},
		"cut early":    {cutBy(5200), ErrIncomplete, "no figure"},
		"foreign":      {t.TempDir(), ErrNotAFolder, ManifestFile},
		"missing":      {filepath.Join(t.TempDir(), "no"), ErrNotAFolder, ManifestFile},
	} {
		for _, dirs := range [][2]string{{good, tt.other}, {tt.other, good}} {
			if _, err := Folders(dirs[0], dirs[1], ""); !errors.Is(err, tt.want) || name != "another plan" && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestBuilds(t *testing.T) {
	r := run{
		subjects: []Subject{{Name: "redis@other", Kind: KindPlugin, BuildOf: "redis"}, {Name: "redis", Kind: KindPlugin}},
		factor:   map[string]float64{"redis@other": 0.8},
	}
	dir := r.write(t)
	c, err := Builds(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range c.Rows {
		if !d.Worse() || d.Cell != "Acquire/backend=redis/clients=8" {
			t.Errorf("%+v", d)
		}
	}
	if len(c.Rows) != 3 {
		t.Errorf("%d rows", len(c.Rows))
	}
	if _, err := Builds(run{}.write(t), ""); !errors.Is(err, ErrPlans) {
		t.Error(err)
	}
}

func TestParseGate(t *testing.T) {
	for _, text := range []string{"", "p99-ns/acquire", "> 10%", "p99-ns/acquire > 10", "p99-ns/acquire >= 10%", "p99-ns/acquire > ten%", "[ > 1%", "a b > 1%",
		"cycles/s > 10ms", "p50-ns/acquire > 10parsecs", "cycles/s / redislock > 10%", "cycles/s / redislock > 10ms"} {
		if g, err := ParseGate(text); err == nil {
			t.Errorf("%q is read as %+v", text, g)
		} else if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not named: %v", text, err)
		}
	}
	g, err := ParseGate(" p50-ns/*>+2.5 % ")
	if err != nil || !g.above || g.limit != 0.025 || !g.concerns("p50-ns/renew") || g.concerns("p99-ns/renew") {
		t.Errorf("%+v, %v", g, err)
	}
	if g.String() != "p50-ns/*>+2.5 %" {
		t.Errorf("%q", g)
	}
}

func parsed(t *testing.T, texts ...string) (out []Gate) {
	t.Helper()
	for _, text := range texts {
		g, err := ParseGate(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, g)
	}
	return out
}

// TestBounds checks bounds, which are limits for figures. In ten runs, redis has a p50 of 124 to
// 134 us and 500 cycles/s. redislock has 5/6 of this p50 and 600 cycles/s. One run lost a lease.
func TestBounds(t *testing.T) {
	dir := run{factor: map[string]float64{"redis": 1.2}}.write(t)
	for text, want := range map[string]struct {
		limit, value string
		broken       bool
	}{
		"cycles/s < 501":                   {">= 501", "500", true},
		"cycles/s > 501":                   {"<= 501", "500", false},
		"cycles/s / redislock < 0.9":       {">= 0.9", "0.833333", true},
		"p50-ns/acquire / redislock > 1.1": {"<= 1.1", "1.2", true},
		"p50-ns/acquire > 0.2ms":           {"<= 0.2ms", "128988", false},
		"max-ns/acquire > 135us":           {"<= 135us", "137988", true}, // the worst of ten runs
		"lost-leases > 0":                  {"<= 0", "1", true},
		"lost-leases > 0.5":                {"<= 0.5", "0", false},
	} {
		c, err := Load([]string{dir}, "/backend:redis", parsed(t, text))
		if err != nil || len(c.Held) != 1 {
			t.Fatalf("%s: %+v, %v", text, c.Held, err)
		}
		h := c.Held[0]
		if h.Limit() != want.limit || h.Broken != want.broken || fmt.Sprintf("%.6g", h.Value) != want.value || h.Row.Cell != "Acquire/backend=redis/clients=8" {
			t.Errorf("%s: %s, %v of %s, broken: %v", text, h.Limit(), h.Value, h.Row.Cell, h.Broken)
		}
	}
	for _, text := range []string{"cycles/s / redislok < 2", "p50-ns/acquir > 1s"} {
		if c, err := Load([]string{dir}, "", parsed(t, text)); !errors.Is(err, ErrNoFigure) {
			t.Errorf("%s: %+v, %v", text, c.Held, err)
		}
	}
	three := run{
		subjects: []Subject{{Name: "redis", Kind: KindPlugin}, {Name: "etcd", Kind: KindPlugin}, {Name: "mysql", Kind: KindPlugin}},
		factor:   map[string]float64{"etcd": 3, "mysql": 2},
	}.write(t)
	c, err := Load([]string{three}, "", parsed(t, "p50-ns/acquire > 1ms", "cycles/s > 250"))
	if err != nil || len(c.Held) != 2 || !strings.Contains(c.Held[0].Row.Cell, "etcd") || !strings.Contains(c.Held[1].Row.Cell, "redis") || c.Held[1].Rows != 3 {
		t.Errorf("of three the worst is held: %+v, %v", c.Held, err)
	}
	cut := run{state: StateInterrupted}.write(t)
	if _, err := Load([]string{cut}, "", parsed(t, "cycles/s < 1")); !errors.Is(err, ErrIncomplete) {
		t.Errorf("figures of a run that was cut off count: %v", err)
	}
}

func TestGatesNeedEveryRun(t *testing.T) {
	slow := func(runs int) run { return run{slow: map[string]int{"redis": runs}} }
	lib := func(slow, failed int) run {
		return run{slow: map[string]int{"redislock": slow}, failed: map[string]int{"redislock": failed}}
	}
	two := run{subjects: []Subject{{Name: "etcd", Kind: KindPlugin}, {Name: "redis", Kind: KindPlugin}, {Name: "redislock", Kind: KindBaseline}}, slow: slow(10).slow}
	const change, bound, ratio = "p99-ns/acquire > +900%", "p99-ns/acquire > 1s", "p99-ns/acquire / redislock > 9"
	for name, tt := range map[string]struct {
		before, after run
		gate          string
		want          error
	}{
		"whole":                {run{}, run{}, change, nil},
		"some runs":            {run{}, slow(6), change, ErrIncomplete},
		"some runs before":     {slow(6), run{}, change, ErrIncomplete},
		"no run":               {run{}, slow(10), "p9*-ns/acquire > +900%", ErrIncomplete},
		"no run before":        {slow(10), run{}, change, ErrIncomplete},
		"no run of both":       {slow(10), slow(10), "p9*-ns/acquire > +900%", nil},
		"another figure":       {run{}, slow(6), "p90-ns/acquire > +900%", nil},
		"a bound":              {run{}, slow(6), bound, ErrIncomplete},
		"a bound, no run":      {two, two, bound, nil},
		"a ratio":              {run{}, run{}, ratio, nil},
		"a ratio, some runs":   {run{}, lib(6, 0), ratio, ErrIncomplete},
		"a ratio, no run":      {run{}, lib(10, 0), ratio, ErrIncomplete},
		"a ratio, one plugin":  {two, two, ratio, ErrIncomplete},
		"a baseline that fell": {run{}, lib(0, 1), ratio, ErrIncomplete},
		"a baseline missing":   {run{}, lib(0, 10), ratio, ErrIncomplete},
	} {
		_, err := Load([]string{tt.before.write(t), tt.after.write(t)}, "/backend:(redis OR etcd)", parsed(t, tt.gate))
		if !errors.Is(err, tt.want) || err != nil && !(strings.Contains(err.Error(), "p99-ns/acquire") && strings.Contains(err.Error(), "Acquire/backend=redis/clients=8")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPeak checks that peakOf looks only at cells that differ at most in the number of callers.
func TestPeak(t *testing.T) {
	row := func(cell string) Row { return Row{"Throughput/backend=redis/" + cell, "cycles/s"} }
	runs := map[Row][]float64{row("keys=8/clients=8"): {50, 90, 51}, row("keys=8/clients=64"): {60, 70, 61}, row("keys=8/clients=128"): {55}, row("clients=64"): {99}}
	if got := peakOf(row("keys=8/clients=128"), runs); got != row("keys=8/clients=64").Cell {
		t.Error(got)
	}
}

func TestJudge(t *testing.T) {
	c := compared(t, run{}, run{factor: map[string]float64{"redis": 1.2, "redislock": 1.2}})
	v, unknown := c.Judge(parsed(t, "p99-ns/acquire > +10%", "cycles/s < -10%", "p90-ns/acquire > +50%"))
	if len(v.Failed) != 2 || len(unknown) != 0 || v.Blind != "" {
		t.Errorf("%+v, %v", v, unknown)
	}
	for _, f := range v.Failed {
		if f.Row.Control {
			t.Errorf("a baseline stops: %+v", f)
		}
	}
	if _, unknown := c.Judge(parsed(t, "p99-ns/acquir > +10%")); len(unknown) != 1 {
		t.Errorf("%v", unknown)
	}
	few := run{plan: Plan{Runs: 3}}
	if v, _ := compared(t, few, few).Judge(parsed(t, "p50-ns/acquire > +1%")); v.Blind == "" {
		t.Error("three runs can stop nothing, and the verdict does not say so")
	}
}
