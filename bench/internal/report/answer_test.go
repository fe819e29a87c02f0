package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench/internal/results"
)

func choiceOf(t *testing.T, r Report, need string) choice {
	t.Helper()
	all := r.answer().Choices
	i := slices.IndexFunc(all, func(c choice) bool { return strings.HasPrefix(c.Need, need) })
	if i < 0 {
		t.Fatalf("no choice for %q in %+v", need, all)
	}
	return all[i]
}

func TestChoicesAreOfThisRun(t *testing.T) {
	r := everything(t, false)
	for need, want := range map[string]struct{ take, others string }{
		"a released lock soon":                              {"etcd", "redis (appendfsync off) 2.0x slower"},
		"a new leader soon after the old one's end, kill-m": {"", "these runs show no difference"},
	} {
		c := choiceOf(t, r, need)
		if strings.Join(c.Take, " ") != want.take || c.Others != want.others {
			t.Errorf("%s: %+v, want %+v", need, c, want)
		}
	}
	for _, c := range r.answer().Choices {
		if slices.Contains(c.Take, "memory") {
			t.Errorf("memory, which other hosts do not see, is a candidate: %+v", c)
		}
	}
}

// TestUnsafeIsNoCandidate, whatever its speed.
func TestUnsafeIsNoCandidate(t *testing.T) {
	r := everything(t, true)
	for _, c := range r.answer().Choices {
		if slices.Contains(c.Take, "redis") {
			t.Errorf("%+v", c)
		}
	}
	if note := r.answer().Note; !strings.Contains(note, "redis is no candidate: BROKEN") || strings.Contains(note, "--runs") {
		t.Error(note)
	}
}

func TestTakeoversAreShares(t *testing.T) {
	r := everything(t, false)
	views := r.distributions(takeoverScenario)[0].Views
	if len(views) != 2 {
		t.Fatalf("%d views, want one for each mode", len(views))
	}
	for _, v := range views {
		for _, l := range v.Lines {
			if last := l.Points[len(l.Points)-1]; last[1] != 1 || v.Band.Until != 1e10 {
				t.Errorf("%s ends at a share of %v, the band at %v", l.Name, last[1], v.Band.Until)
			}
		}
	}
}

func TestCommandRepeatsThePlan(t *testing.T) {
	want := "lockbench run --backends=redis,etcd --scenarios=acquire --measure=200ms --runs=6 --ttl=10s --seed=42 --target=etcd=ADDRESS"
	if got := reported(t, acquires(1, false)).command(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r := reported(t, acquires(1, false))
	r.Manifest.Plan.Measurems = 1000
	if got := r.command(); strings.Contains(got, "--measure") {
		t.Errorf("the usual measured time needs no flag: %s", got)
	}
}

// TestDrawingOrdersByPromise: a lane for each promise, the strongest on top, and
// the faster further to the right.
func TestDrawingOrdersByPromise(t *testing.T) {
	d := everything(t, false).answer().Drawing
	var got []string
	var all []mark
	for _, l := range d.Lanes {
		for _, m := range l.Marks {
			name, _, _ := strings.Cut(m.Label, " ")
			got, all = append(got, l.Tokens+": "+name), append(all, m)
		}
	}
	want := "tokens as durable as the data: redis, no tokens: redislock"
	if strings.Join(got, ", ") != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	if all[1].At <= all[0].At || !all[1].Pale || all[0].Pale {
		t.Errorf("the baseline is faster and pale, the backend is not: %+v", all)
	}
	for _, m := range all {
		if m.At < margin || m.At > 100-margin || m.From < margin || m.From+m.Wide > 100-margin+0.01 {
			t.Errorf("%s lies outside: %+v", m.Label, m)
		}
	}
}

// TestDrawingInText has the marks in the order of their places, the verdict above
// and the table of the choice below it.
func TestDrawingInText(t *testing.T) {
	text := output(t, everything(t, false), "text")
	at := -1
	for _, want := range []string{"safe: ", "Speed against what is promised", "● redis ", "redislock ○", "which one should I use", "summary", "\nnotes"} {
		i := strings.Index(text, want)
		if i <= at {
			t.Errorf("%q is missing or stands too early in\n%s", want, text)
		}
		at = i
	}
}

func TestNotesAreFolded(t *testing.T) {
	if got := headed([]string{"the machine was busy: a", "the machine was busy: b", "run 1 of 3 differs from the rest: c"}); got != "Before you believe the figures: the machine was busy; run 1 of 3 differs from the rest" {
		t.Errorf("%+v", got)
	}
	r := Report{Manifest: results.Manifest{Skipped: []string{"mysql: not installed", "etcd: not installed", "memory in scenario takeover"}}}
	if got := strings.Join(r.omissions(), "|"); got != "left out: mysql and etcd: not installed|left out: memory in scenario takeover" {
		t.Error(got)
	}
}
