package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockbench/lockbench/internal/results"
)

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

// TestDrawingOfAViolation: who broke a rule is marked.
func TestDrawingOfAViolation(t *testing.T) {
	for _, l := range everything(t, true).answer().Drawing.Lanes {
		for _, m := range l.Marks {
			if m.Broken != strings.Contains(m.Label, "redis ") || m.Broken != strings.HasPrefix(m.Label, "✗ ") {
				t.Errorf("%+v", m)
			}
		}
	}
}

// TestDrawingNeedsTwo: one mark compares nothing.
func TestDrawingNeedsTwo(t *testing.T) {
	r, err := Load(written(t, []results.Cell{cycles("redis", 1, 0, 1e5, false)}))
	if err != nil {
		t.Fatal(err)
	}
	if d := r.answer().Drawing; len(d.Lanes) > 0 {
		t.Errorf("%+v", d)
	}
}

// TestDrawingInText has the marks in the order of their places, the verdict above
// and the table of the choice below it.
func TestDrawingInText(t *testing.T) {
	text := render(t, func(w *bytes.Buffer) error { return everything(t, false).Text(w) })
	at := -1
	for _, want := range []string{"safe: ", "Speed against what is promised", "● redis ", "redislock ○", "which one should I use", "summary", "\nnotes"} {
		i := strings.Index(text, want)
		if i <= at {
			t.Errorf("%q is missing or stands too early in\n%s", want, text)
		}
		at = i
	}
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); strings.ContainsAny(line, "●○") && n > textWidth {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

func TestNotesAreFolded(t *testing.T) {
	if got := headed([]string{"the machine was busy: a", "the machine was busy: b", "run 1 of 3 differs from the rest: c"}); got.Head != "Before you believe the figures: the machine was busy; run 1 of 3 differs from the rest" || len(got.Lines) != 3 {
		t.Errorf("%+v", got)
	}
	r := Report{Manifest: results.Manifest{Skipped: []string{"mysql: not installed", "etcd: not installed", "memory in scenario takeover"}}}
	if got := strings.Join(r.omissions(), "|"); got != "left out: mysql and etcd: not installed|left out: memory in scenario takeover" {
		t.Error(got)
	}
}
