package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/results"
)

func output(t *testing.T, r Report, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestVerdict(t *testing.T) {
	cells := []results.Cell{cycles("redis", 1, 0, 1e5, false), cycles("redislock", 1, 0, 1e5, true)}
	r := reported(t, cells)
	if got := r.Safe(); !strings.HasPrefix(got, "safe: 1 grants of redis checked") {
		t.Errorf("the verdict is %q", got)
	}
	if got := r.besides(); !strings.HasSuffix(got, "2 grants of redislock checked: rules broken by redislock") {
		t.Errorf("of the baselines: %q", got)
	}
	if r := reported(t, cells[1:]); !strings.HasPrefix(r.Safe(), "INVALID") {
		t.Errorf("no backend was granted anything: %q", r.Safe())
	}
	r.Verdict.Cells = []check.Cell{{Grants: 9, Class: check.ClassHeld}, {Backend: "etcd", Fault: "pause", Class: check.ClassInvalid}}
	if got := output(t, r, "html"); !strings.Contains(got, "✗</span> INVALID: etcd under pause: nothing was granted") {
		t.Errorf("a cell without a verdict: %q", r.Safe())
	}
}

// TestRefusedOpenLoop checks that the report hides figures of runs that missed the planned rate.
func TestRefusedOpenLoop(t *testing.T) {
	c := cycles("redis", 64, 0, 1e5, false)
	c.Latencies["open-acquire"], c.Values["open-refused"] = []int64{300_000, 300_000, 8e6}, 1
	text := strings.Join(strings.Fields(output(t, reported(t, []results.Cell{c}), "text")), " ")
	want := "no figures of the open loop, because calls were dropped or started late, for redis at 64 clients"
	if !strings.Contains(text, want) || !strings.Contains(text, "refused") || strings.Contains(text, "300µs") {
		t.Error(text)
	}
}

// TestRoundTrips checks that the report computes round trips from latencies at several RTTs.
// Hand-overs inside one host must not count, because they do not ask the store.
func TestRoundTrips(t *testing.T) {
	var cells []results.Cell
	for i := range 3 * fewestRuns {
		rtt := []time.Duration{0, time.Millisecond, 5 * time.Millisecond}[i%3]
		acquire := cycles("redis", 1, i/3, int64(100*time.Microsecond+2*rtt+rtt/20), false)
		contend := results.Cell{Section: section("contend", "redis", 1, i/3), Latencies: map[string][]int64{"handoff": {int64(rtt)}}, Values: map[string]float64{}}
		inside := contend
		contend.Values = map[string]float64{}
		if rtt > 0 {
			acquire.Values["trips/acquire"], contend.Values["trips/handoff"] = 2, 2
		}
		contend.Hosts = 2
		for _, c := range []results.Cell{acquire, contend, inside} {
			c.RTT = rtt
			cells = append(cells, c)
		}
	}
	text := output(t, reported(t, cells), "text")
	if inside := strings.Index(text, "contend, 1 client ("); inside < strings.Index(text, "contend, 2 hosts, store 5ms") || !strings.Contains(text[inside:], "decides between no") {
		t.Errorf("inside a host is not last: %s", text)
	}
	if !strings.Contains(strings.Join(strings.Fields(text), " "), "round trips to the store backend acquire hand-over redis (plugin) 2 (2.05) 2 (1.00) ") {
		t.Error(text)
	}
	if warning := "hand-over of redis waits for 2 as counted, for 1.00 by"; !strings.Contains(strings.Join(strings.Fields(text), " "), warning) || strings.Contains(text, "acquire of redis waits") {
		t.Error(text)
	}
	if text := output(t, everything(t, false), "text"); strings.Contains(text, "round trips") {
		t.Error(text)
	}
}

// TestTextFitsATerminal checks that no line has more than 80 columns, except the command line,
// which users copy.
func TestTextFitsATerminal(t *testing.T) {
	for _, overlap := range []bool{false, true} {
		r := everything(t, overlap)
		text := output(t, r, "text")
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 && !strings.HasPrefix(line, "    --") {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		verdict, table := strings.Index(text, r.Safe()[:20]), strings.Index(text, "µs")
		if verdict != 0 || table < 0 {
			t.Errorf("the verdict stands at %d, the first figure at %d", verdict, table)
		}
	}
}

func TestMarkdownIsTables(t *testing.T) {
	r := everything(t, false)
	md := output(t, r, "md")
	tables, before := 0, 0
	for line := range strings.Lines(md) {
		n := strings.Count(line, "|")
		if before == 0 && n > 0 {
			tables++
		} else if n != before && n > 0 {
			t.Errorf("a line has %d bars after one with %d: %s", n, before, line)
		}
		before = n
	}
	if tables < 6 {
		t.Errorf("%d tables:\n%s", tables, md)
	}
}

func TestJSON(t *testing.T) {
	r := reported(t, acquires(1, false))
	var doc struct {
		Grants  int `json:"grants_checked"`
		Figures []struct {
			Backend, Unit string
			Median        float64
			Ratio         *float64
		}
	}
	text := output(t, r, "json")
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Grants != 12 || len(doc.Figures) != 4 {
		t.Fatalf("%d grants, %d figures", doc.Grants, len(doc.Figures))
	}
	for _, f := range doc.Figures {
		if (f.Backend == "redis") != (f.Ratio != nil) {
			t.Errorf("%s has ratio %v", f.Backend, f.Ratio)
		}
	}
}

func TestFormat(t *testing.T) {
	for want, got := range map[string]string{
		"146µs":       duration(146_000),
		"1.23ms":      duration(1_234_567),
		"12.0s":       duration(12e9),
		"71,300":      grouped(71_300),
		"0.351x":      times(results.Ratio{Estimate: results.Median([]float64{0.351}), Test: results.Test{Supported: true}}),
		unsupported:   times(results.Ratio{Estimate: results.Median([]float64{0.351})}),
		"2.00µs ±50%": value("p50-ns/acquire", results.Estimate{N: 6, Center: 2000, Lo: 1000, Hi: 2500}),
		"1,000 ±10%":  value("cycles/s", results.Estimate{N: 6, Center: 1000, Lo: 900, Hi: 1100}),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestCurvesOverHosts checks that no curve of a chart connects figures of one host with figures of
// several hosts.
func TestCurvesOverHosts(t *testing.T) {
	var cells []results.Cell
	for run := range testRuns {
		for i, hosts := range []int{0, 2} {
			for _, clients := range []int{8, 16} {
				c := cycles("redis", clients, run, int64(i+1)*100_000, false)
				c.Scenario, c.Hosts, c.Keys = "throughput", hosts, 64
				cells = append(cells, c)
			}
		}
	}
	r := reported(t, cells)
	points := map[string][][]float64{}
	c := r.loadChart("throughput")
	if !strings.Contains(c.Note, "of all hosts together") {
		t.Errorf("the note says %q", c.Note)
	}
	for _, v := range c.Views {
		points[v.Label] = v.Lines[0].Points
	}
	one, two := points["cycles/s, 64 keys"], points["cycles/s, 2 hosts, 64 keys"]
	if len(one) != 2 || one[1][0] != 16 || len(two) != 2 || two[0][0] != 16 || two[0][1] == one[1][1] {
		t.Errorf("one host %v, two hosts %v", one, two)
	}
	if hs := r.highlights(); len(hs) != 1 || hs[0].title != "cycles/s, 16 clients, 64 keys" {
		t.Errorf("%+v", hs)
	}
}

// TestStallsShow checks that the report shows a stall of one run in six, in a column and in a note,
// although the median hides the stall.
func TestStallsShow(t *testing.T) {
	r := reported(t, acquires(1, false))
	maxima := []float64{1e6, 2e6, 1e6, 6.01e9, 1e6, 2e6}
	r.Tables = []Table{{CellName: results.CellName{Scenario: acquireScenario, Clients: 8}, Rows: []Row{
		row(results.Subject{Name: "redis", Kind: results.KindPlugin}, map[string][]float64{"max-ns/acquire": maxima, "max-ns/renew": maxima, "max-ns/release": maxima, "max-ns/wait": maxima}, nil),
		row(results.Subject{Name: "etcd", Kind: results.KindPlugin}, map[string][]float64{"max-ns/acquire": {9e7, 1e6, 1e6}}, nil),
	}}}
	for _, out := range []string{
		output(t, r, "text"),
		output(t, r, "html"),
	} {
		out = strings.Join(strings.Fields(out), " ")
		for _, want := range []string{"worst", "run 4 of 6 differs from the rest: an acquire of redis took 6.01s (acquire, 8 clients); the longest of the median run took 1.50ms; so do a renewal of redis 6.01s (acquire, 8 clients, run 4), a release of redis 6.01s (acquire, 8 clients, run 4) and 1 more"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if strings.Contains(out, "acquire of etcd took") {
			t.Error("90 ms are no stall")
		}
	}
	if out := output(t, r, "json"); !strings.Contains(out, `"max": 6010000000`) {
		t.Errorf("no maximum in\n%s", out)
	}
}

// TestFailedCellsHeadTheRun checks that the verdict names failed measurements in plain words, and
// that a note has the full error. A run without figures of a baseline can still be complete.
func TestFailedCellsHeadTheRun(t *testing.T) {
	raw := "http://127.0.0.1:1: backend is unavailable: request was not sent: rpc error: code = Unavailable"
	r := reported(t, acquires(1, false))
	r.Manifest.State, r.Manifest.Failure = results.StateFailed, "etcd: "+raw+"\nmysql: 2 cells failed"
	r.Manifest.Plan.Baselines = []string{"redsync"}
	r.Manifest.Failed = []results.FailedCell{
		{Backend: "etcd", Reason: "etcd: " + raw},
		{Backend: "redsync", Cell: "acquire, clients 1", Run: 1, Reason: "no operation succeeded"},
		{Backend: "mysql", Cell: "acquire, clients 1", Run: 1, Reason: "mysql: too many connections"},
		{Backend: "mysql", Cell: "acquire, clients 1", Run: 2, Reason: "mysql: too many connections"},
	}
	want := "INCOMPLETE: the run failed: etcd was not measured (http://127.0.0.1:1: backend is unavailable), mysql lacks 2 cells (too many connections); of what it had measured: safe: "
	if got := r.Safe(); !strings.HasPrefix(got, want) {
		t.Errorf("%q does not begin with %q", got, want)
	}
	if notes := strings.Join(r.remarks(), "\n"); !strings.Contains(notes, "failed: etcd: "+raw+"\nfailed: mysql: 2 cells failed") {
		t.Errorf("the notes lack what was met:\n%s", notes)
	}
}
