package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/results"
)

// Report has the data of one run, as read from its result folder.
type Report struct {
	Manifest results.Manifest
	Verdict  check.Verdict
	Tables   []Table
	// Latencies has, for each operation of a subject under one load, a histogram over all runs.
	Latencies map[results.HistogramKey]*hdrhistogram.Histogram
}

// Table has the figures of one scenario under one load, with a row for each subject.
type Table struct {
	results.CellName // without a backend
	Rows             []Row
}

func (t Table) cellOf(row Row) results.CellName {
	c := t.CellName
	c.Backend = row.Name
	return c
}

// rowOf returns the row of a subject, or a Row without figures.
func (t Table) rowOf(subject string) Row {
	i := slices.IndexFunc(t.Rows, func(row Row) bool { return row.Name == subject })
	if i < 0 {
		return Row{}
	}
	return t.Rows[i]
}

// Row has the figures of one subject: a backend, a baseline (a library) or a floor (a cheap call).
type Row struct {
	results.Subject
	// Figures has the median of all runs, for each unit of results.txt.
	Figures map[string]results.Estimate
	// Ratios has, for each unit, the figure divided by the figure of the subject's reference baseline.
	Ratios map[string]*results.Ratio
	// Runs has, for each unit, one value from each run.
	Runs map[string][]float64
}

// Load reads a result folder, and checks again whether its records break a rule.
func Load(dir string) (Report, error) {
	var r Report
	var err error
	if r.Manifest, err = results.ReadManifest(dir); err != nil {
		return r, err
	}
	lines, err := results.ReadResults(dir)
	if err != nil {
		return r, fmt.Errorf("report: %w", err)
	}
	if r.Verdict, err = check.Dir(dir); err != nil {
		return r, fmt.Errorf("report: %w", err)
	}
	if r.Latencies, err = results.ReadHistograms(dir); err != nil {
		return r, fmt.Errorf("report: %w", err)
	}
	r.Tables = tables(r.Manifest, lines)
	return r, nil
}

// These are the scenarios that this package knows. A report shows an unknown scenario with all its
// figures.
const (
	acquireScenario    = "acquire"
	throughputScenario = "throughput"
	contendScenario    = "contend"
	takeoverScenario   = "takeover"
	ttlScenario        = "ttl"
	floorScenario      = "floor"
)

// scenarioOrder is the order of the sections in a report. Unknown scenarios follow after these, and
// then the floors, which are the cheapest possible calls.
var scenarioOrder = []string{acquireScenario, throughputScenario, contendScenario, takeoverScenario, ttlScenario}

var proves = map[string]string{
	acquireScenario:    "Uncontended latency: each caller acquires, renews and releases a lock that no other caller wants.",
	throughputScenario: "Maximum throughput, in cycles of acquire, renew and release, and the latency at it.",
	contendScenario:    "Contention: all callers want one lock. The hand-over is the time from one holder's release to the next one's grant.",
	floorScenario:      "The floor: what the path itself costs in this run, as a PING of the server and as a call to a plugin that finds nothing.",
	ttlScenario:        "How short a TTL this machine, network and store bear: leases of several TTLs are renewed at the same time, so that all of them meet the same stalls.",
	takeoverScenario:   "Failover time: from the leader's death, or its loss of the network, to the grant of a process that waits.",
}

func scenarioRank(name string) int {
	if name == floorScenario {
		return len(scenarioOrder) + 1
	}
	return rank(scenarioOrder, name)
}

// rank returns the index of the name in order. All names that are not in order come after it.
func rank(order []string, name string) int {
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

// scenarios returns the tables, grouped by scenario, in the order of the sections of the report.
func (r Report) scenarios() []group[string, Table] {
	return groups(r.Tables, func(t Table) string { return t.Scenario })
}

func (r Report) of(scenario string) []Table {
	return filter(r.Tables, func(t Table) bool { return t.Scenario == scenario })
}

// tables makes the tables from the lines of results.txt, one for each scenario and load.
func tables(m results.Manifest, lines []results.Result) []Table {
	var out []Table
	byTable := groups(lines, func(r results.Result) results.CellName { r.Backend = ""; return r.CellName })
	for _, g := range byTable {
		t, runs := Table{CellName: g.key}, map[string]map[string][]float64{} // by backend and unit
		for _, r := range g.all {
			if runs[r.Backend] == nil {
				runs[r.Backend] = map[string][]float64{}
			}
			for unit, v := range r.Values {
				runs[r.Backend][unit] = append(runs[r.Backend][unit], v)
			}
		}
		for _, s := range m.Subjects {
			if values, ok := runs[s.Name]; ok {
				t.Rows = append(t.Rows, row(s, values, runs[s.Reference]))
			}
		}
		correct(t.Rows)
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Table) int {
		return cmp.Or(cmp.Compare(scenarioRank(a.Scenario), scenarioRank(b.Scenario)), cmp.Compare(a.Scenario, b.Scenario), byLoad(a.CellName, b.CellName))
	})
	return out
}

// insideHost reports whether all callers of the table are in one host and want one lock. Such a
// host hands the lock over without asking the store.
func (t Table) insideHost() bool { return t.Scenario == contendScenario && t.Hosts == 0 }

// byLoad orders cells by load. Cells of scenario contend with all callers in one host come last.
func byLoad(a, b results.CellName) int {
	last := 0
	if x, y := (Table{CellName: a}).insideHost(), (Table{CellName: b}).insideHost(); x != y {
		last = cmp.Compare(b.Hosts, a.Hosts)
	}
	return cmp.Or(last, cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.RTT, b.RTT), cmp.Compare(a.Hosts, b.Hosts), cmp.Compare(b.Keys, a.Keys),
		cmp.Compare(a.Hold, b.Hold), cmp.Compare(a.Clients, b.Clients))
}

func row(s results.Subject, values, reference map[string][]float64) Row {
	r := Row{Subject: s, Figures: map[string]results.Estimate{}, Ratios: map[string]*results.Ratio{}, Runs: values}
	for unit, v := range values {
		r.Figures[unit] = results.Median(v)
		if ref, ok := reference[unit]; ok && s.Reference != s.Name {
			ratio := results.Compare(v, ref)
			r.Ratios[unit] = &ratio
		}
	}
	return r
}

// correct adjusts the p-values of a table's ratios, because many tests find some difference by
// chance. It uses Holm's method, for each unit over all rows.
func correct(rows []Row) {
	units := map[string][]*results.Test{}
	for _, r := range rows {
		for unit, ratio := range r.Ratios {
			if ratio.N > 0 {
				units[unit] = append(units[unit], &ratio.Test)
			}
		}
	}
	for _, column := range units {
		results.Holm(column)
	}
}
