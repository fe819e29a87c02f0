package report

import (
	"slices"
	"strings"
	"testing"
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
		"tokens that a resource can trust":                  {"etcd", "durable: redis"},
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

func TestTooFewRunsSaySo(t *testing.T) {
	r, err := Load(written(t, acquires(1, false)[:4])) // two of each
	if err != nil {
		t.Fatal(err)
	}
	if said := r.undecided(); said != "too few runs to show a difference" {
		t.Error(said)
	}
	if note := r.answer().Note; !strings.Contains(note, "2 runs cannot support any: ask for --runs 4 or more") {
		t.Error(note)
	}
}

func TestTakeoversAgainstTheBand(t *testing.T) {
	r := everything(t, false)
	views := r.takeoverChart(takeoverScenario).Views
	if len(views) != 2 {
		t.Fatalf("%d views, want one for each mode", len(views))
	}
	for i, before := range []string{"12", "0"} { // kill-host, kill-machine
		for _, row := range views[i].Table.Rows {
			if n := len(row); row[n-2].Text != before || row[n-1].Text != "0" {
				t.Errorf("%s: %v", views[i].Label, row)
			}
		}
		for _, l := range views[i].Lines {
			if last := l.Points[len(l.Points)-1]; last[1] != 1 {
				t.Errorf("%s ends at a share of %v", l.Name, last[1])
			}
		}
	}
}

func TestCommandRepeatsThePlan(t *testing.T) {
	want := "lockbench run --backends=redis,etcd --scenarios=acquire --measure=200ms --runs=6 --ttl=10s --seed=42 --target=etcd=ADDRESS"
	if got := load(t, false).command(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r := load(t, false)
	r.Manifest.Plan.Measurems = 1000
	if got := r.command(); strings.Contains(got, "--measure") {
		t.Errorf("the usual measured time needs no flag: %s", got)
	}
}
