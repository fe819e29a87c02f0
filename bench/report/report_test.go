package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/record"
	"github.com/lockbench/lockbench/bench/stat"
)

// folder writes six runs in which redis takes twice as long as redislock. With
// overlap, redis grants a lock twice.
func folder(t *testing.T, overlap bool) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	f, err := record.Create(dir, record.Manifest{
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Plan:    record.Plan{Runs: 6, Measurems: 200, Seed: 42},
		Machine: record.Machine{Cores: 2, CPU: "<a CPU>"},
		Subjects: []record.Subject{
			{Name: "redis", Kind: record.KindPlugin, Durability: "appendfsync off", Fencing: "durable", Reference: "redislock", Server: "Redis 7"},
			{Name: "redislock", Kind: record.KindBaseline, Durability: "appendfsync off", Fencing: "none", Reference: "redislock"},
			{Name: "redis-ping", Kind: record.KindFloor},
		},
		Skipped: []string{"mysql: not installed"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for run := range 6 {
		for i, s := range []string{"redislock", "redis"} {
			if err := f.Add(cell(s, run, int64(i+1)*int64(100_000+run*1000), overlap && s == "redis")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Close(record.StateDone); err != nil {
		t.Fatal(err)
	}
	return dir
}

func cell(backend string, run int, ns int64, overlap bool) record.Cell {
	c := record.Cell{
		Section: record.Section{
			Backend: backend, Kind: record.KindPlugin, Fencing: "durable", Scenario: "acquire", Clients: 1, Run: run + 1,
			Names: []string{"a"},
		},
		Cycles: 1, Latencies: map[string][]int64{"acquire": {ns}}, Values: map[string]float64{"cycles/s": 1e9 / float64(ns)},
	}
	if backend == "redislock" {
		c.Kind, c.Fencing = record.KindBaseline, "none"
	}
	at := int64(run) * 1e6
	c.Attempts = []record.Attempt{{Asked: at, Answered: at + ns, Ended: at + 2*ns, Done: at + 3*ns, Token: uint64(run) + 1, Outcome: record.Granted, End: record.EndReleased}}
	if overlap {
		second := c.Attempts[0]
		second.Client, second.Token = 1, uint64(run)+2
		c.Attempts = append(c.Attempts, second)
	}
	return c
}

func load(t *testing.T, overlap bool) Report {
	t.Helper()
	r, err := Load(folder(t, overlap))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func render(t *testing.T, f func(w *bytes.Buffer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := f(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestText(t *testing.T) {
	r := load(t, false)
	text := render(t, func(w *bytes.Buffer) error { return r.Text(w) })
	for _, want := range []string{
		"acquire, 1 client (median of 6 runs,",
		"redis (plugin)", "appendfsync off", "durable", "205µs ±", "2.00x ±0%", "0.500x ±0%",
		"redis through its plugin / redislock in process: acquire p50 at 1 client 2.00x",
		"safe: 12 grants checked", "left out: mysql: not installed", "seed 42",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "renew") {
		t.Error("a column without a figure is shown")
	}
}

func TestTextOfAViolation(t *testing.T) {
	r := load(t, true)
	text := render(t, func(w *bytes.Buffer) error { return r.Text(w) })
	for _, want := range []string{"UNSAFE", "two holders at once", `lock "a"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the text does not say %q:\n%s", want, text)
		}
	}
}

func TestMarkdownIsATable(t *testing.T) {
	r := load(t, false)
	md := render(t, func(w *bytes.Buffer) error { return r.Markdown(w) })
	var bars []int
	for line := range strings.Lines(md) {
		if strings.HasPrefix(line, "|") {
			bars = append(bars, strings.Count(line, "|"))
		}
	}
	if len(bars) != 4 { // titles, rule, two rows
		t.Fatalf("%d lines of table:\n%s", len(bars), md)
	}
	for _, n := range bars {
		if n != bars[0] {
			t.Errorf("lines of a table differ in columns: %v\n%s", bars, md)
		}
	}
}

func TestJSONAndCSVAgree(t *testing.T) {
	r := load(t, false)
	var doc struct {
		Grants  int `json:"grants_checked"`
		Figures []struct {
			Backend, Unit string
			Median        float64
			Ratio         *float64
		}
	}
	text := render(t, func(w *bytes.Buffer) error { return r.JSON(w) })
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(render(t, func(w *bytes.Buffer) error { return r.CSV(w) }))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if doc.Grants != 12 || len(doc.Figures) != 4 || len(rows) != 5 {
		t.Fatalf("%d grants, %d figures, %d lines", doc.Grants, len(doc.Figures), len(rows))
	}
	for i, f := range doc.Figures {
		if rows[i+1][1] != f.Backend || rows[i+1][6] != f.Unit || rows[i+1][8] != fmt.Sprintf("%.6g", f.Median) {
			t.Errorf("%+v in JSON, %v in CSV", f, rows[i+1])
		}
		if (f.Backend == "redis") != (f.Ratio != nil) {
			t.Errorf("%s has ratio %v", f.Backend, f.Ratio)
		}
	}
}

func TestHTMLNeedsNothingElse(t *testing.T) {
	for _, overlap := range []bool{false, true} {
		r := load(t, overlap)
		html := render(t, func(w *bytes.Buffer) error { return r.HTML(w) })
		for _, foreign := range []string{"http://", "https://", "<script", "src=", "<a CPU>"} {
			if strings.Contains(html, foreign) {
				t.Errorf("the page has %s", foreign)
			}
		}
		for _, want := range []string{"prefers-color-scheme: dark", "redis (plugin)", "&lt;a CPU&gt;"} {
			if !strings.Contains(html, want) {
				t.Errorf("the page does not have %s", want)
			}
		}
		if strings.Contains(html, `class="verdict bad"`) != overlap {
			t.Errorf("verdict of overlap=%v is shown wrongly", overlap)
		}
	}
}

func TestFormat(t *testing.T) {
	for want, got := range map[string]string{
		"146µs":       duration(146_000),
		"1.23ms":      duration(1_234_567),
		"12.0s":       duration(12e9),
		"87.0ns":      duration(87),
		"71,300":      grouped(71_300),
		"1,234,567":   grouped(1_234_567),
		"0.351x":      Times(stat.Ratio{Estimate: stat.Median([]float64{0.351}), Supported: true}),
		unsupported:   Times(stat.Ratio{Estimate: stat.Median([]float64{0.351})}),
		"2.00µs ±50%": Value("p50-ns/acquire", stat.Estimate{N: 6, Center: 2000, Lo: 1000, Hi: 2500}),
		"1,000 ±10%":  Value("cycles/s", stat.Estimate{N: 6, Center: 1000, Lo: 900, Hi: 1100}),
		"1 client":    plural(1, "client"),
		"64 clients":  plural(64, "client"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
