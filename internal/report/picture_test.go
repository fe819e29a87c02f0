package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockbench/lockbench/internal/record"
)

// TestPictureOrdersByPromise: a lane for each promise, the strongest on top, and
// the faster further to the right.
func TestPictureOrdersByPromise(t *testing.T) {
	p := everything(t, false).picture()
	var got []string
	at := map[string]mark{}
	for _, l := range p.Lanes {
		for _, row := range l.Rows {
			for _, m := range row {
				got = append(got, l.Tokens+": "+m.Name)
				at[m.Name] = m
			}
		}
	}
	want := "tokens as durable as the data: redis, no tokens: redislock"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if at["redislock"].At <= at["redis"].At || !at["redislock"].Pale || at["redis"].Pale {
		t.Errorf("the baseline is faster and pale, the backend is not: %+v", at)
	}
	for name, m := range at {
		if m.At < margin || m.At > 100-margin || m.From < margin || m.From+m.Wide > 100-margin+0.01 {
			t.Errorf("%s lies outside: %+v", name, m)
		}
	}
	if len(p.Table.Rows) != len(at) {
		t.Errorf("%d rows of a table for %d marks", len(p.Table.Rows), len(at))
	}
}

// TestPictureOfAViolation: who broke a rule is marked, and nobody's answer.
func TestPictureOfAViolation(t *testing.T) {
	p := everything(t, true).picture()
	for _, l := range p.Lanes {
		for _, m := range l.Rows[0] {
			if m.Broken != (m.Name == "redis") {
				t.Errorf("%+v", m)
			}
		}
	}
	if strings.Contains(p.Answer, "redis") {
		t.Errorf("the answer is %q", p.Answer)
	}
}

// TestPictureNeedsTwo: one mark compares nothing.
func TestPictureNeedsTwo(t *testing.T) {
	r, err := Load(written(t, []record.Cell{cycles("redis", 1, 0, 1e5, false)}))
	if err != nil {
		t.Fatal(err)
	}
	if p := r.picture(); len(p.Lanes) > 0 {
		t.Errorf("%+v", p)
	}
}

// TestLabelsDoNotMeet: labels stand on the side where there is room, and marks
// at one place get rows of their own.
func TestLabelsDoNotMeet(t *testing.T) {
	rows := packed(marks{{Name: "redislock", At: 46, Pale: true}, {Name: "rueidislock", At: 52, Pale: true}, {Name: "etcd", Value: "1ms", At: 96}})
	if len(rows) != 1 || !rows[0][0].Left || rows[0][0].Name != "etcd" {
		t.Errorf("%+v", rows)
	}
	if rows = packed(append(rows[0], mark{Name: "redsync", At: 50, Pale: true})); len(rows) != 2 || rows[0].Faint() || !rows[1].Faint() {
		t.Errorf("%+v", rows)
	}
}

// TestPictureInText has the marks in the order of their places, the verdict above
// and the table of the choice below it.
func TestPictureInText(t *testing.T) {
	text := render(t, func(w *bytes.Buffer) error { return everything(t, false).Text(w) })
	at := -1
	for _, want := range []string{"safe: ", "Speed against what is promised", "● redis ", "○ redislock", "which one should I use", "summary", "\nnotes"} {
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

func TestTicksAreRound(t *testing.T) {
	var got []string
	for _, tk := range (scale{lo: 4.9, hi: 7.1, unit: "p50-ns/acquire"}).ticks() {
		got = append(got, tk.Text)
	}
	if strings.Join(got, " ") != "100µs 1ms 10ms" {
		t.Errorf("%q", got)
	}
}

func TestNotesAreFolded(t *testing.T) {
	if got := headed([]string{"the machine was busy: a", "the machine was busy: b", "run 1 of 3 differs from the rest: c"}); got.Head != "Before you believe the figures: the machine was busy; run 1 of 3 differs from the rest" || len(got.Lines) != 3 {
		t.Errorf("%+v", got)
	}
	r := Report{Manifest: record.Manifest{Skipped: []string{"mysql: not installed", "etcd: not installed", "memory in scenario takeover"}}}
	if got := strings.Join(r.omissions(), "|"); got != "left out: mysql and etcd: not installed|left out: memory in scenario takeover" {
		t.Error(got)
	}
}
