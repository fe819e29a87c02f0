package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/results"
)

// TestStallsShow: what stalled in one run of six is a column and a note,
// whatever the median says.
func TestStallsShow(t *testing.T) {
	r := load(t, false)
	maxima := []float64{1e6, 2e6, 1e6, 6.01e9, 1e6, 2e6}
	r.Tables = []Table{{CellName: results.CellName{Scenario: acquireScenario, Clients: 8}, Rows: []Row{
		row(results.Subject{Name: "redis", Kind: results.KindPlugin}, map[string][]float64{"max-ns/acquire": maxima}, nil),
		row(results.Subject{Name: "etcd", Kind: results.KindPlugin}, map[string][]float64{"max-ns/acquire": {9e7, 1e6, 1e6}}, nil),
	}}}
	for _, out := range []string{
		render(t, func(w *bytes.Buffer) error { return r.Text(w) }),
		render(t, func(w *bytes.Buffer) error { return r.HTML(w) }),
	} {
		out = strings.Join(strings.Fields(out), " ")
		for _, want := range []string{"worst", "run 4 of 6 differs from the rest: an acquire of redis took 6.01s (acquire, 8 clients); the longest of the median run took 1.50ms"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if strings.Contains(out, "acquire of etcd took") {
			t.Error("90 ms are no stall")
		}
	}
	if out := render(t, func(w *bytes.Buffer) error { return r.JSON(w) }); !strings.Contains(out, `"max": 6010000000`) {
		t.Errorf("no maximum in\n%s", out)
	}
}

// TestIncompleteRunIsHeadedByThat, and not by what is good about it.
func TestIncompleteRunIsHeadedByThat(t *testing.T) {
	for state, want := range map[results.State]string{
		results.StateInterrupted: "INCOMPLETE: the run was interrupted; of what it had measured: safe: ",
		results.StateRunning:     "INCOMPLETE: the run is still going on, or was killed; ",
		results.StateFailed:      "INCOMPLETE: the run failed: the disk is full; ",
	} {
		r := load(t, false)
		r.Manifest.State, r.Manifest.Failure = state, "the disk is full"
		if text := render(t, func(w *bytes.Buffer) error { return r.Markdown(w) }); !strings.HasPrefix(text, "**"+want) {
			t.Errorf("%s begins with %q", state, text[:min(len(text), 150)])
		}
		if page := render(t, func(w *bytes.Buffer) error { return r.HTML(w) }); !strings.Contains(page, `class="verdict bad"`) {
			t.Errorf("%s has a good verdict", state)
		}
	}
}

// TestFailedCellsHeadTheRun in plain words; what was met is a note, and what
// baselines lack makes no run incomplete.
func TestFailedCellsHeadTheRun(t *testing.T) {
	raw := "http://127.0.0.1:1: backend is unavailable: request was not sent: rpc error: code = Unavailable"
	r := load(t, false)
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
