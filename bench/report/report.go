// Package report renders a result folder: as text, Markdown, CSV, JSON, and as
// one self-contained HTML file. It needs the folder only.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench/check"
	"github.com/lockbench/lockbench/bench/record"
	"github.com/lockbench/lockbench/bench/stat"
)

// Report is what a folder says.
type Report struct {
	Dir      string
	Manifest record.Manifest
	Verdict  check.Verdict
	Tables   []Table
}

// Table is one scenario with one number of hosts and clients.
type Table struct {
	Scenario string
	Mode     string // of the scenario, where it has several
	Hosts    int    // processes of their own; 0: in lockbench
	Clients  int
	Rows     []Row
	// Floors were measured with as many clients in the same run.
	Floors []Row
}

// Row is one subject in a table.
type Row struct {
	record.Subject
	// Figures are medians over the runs, by unit as in results.txt.
	Figures map[string]stat.Estimate
	// Ratios are to the subject's reference, by unit; empty without one.
	Ratios map[string]stat.Ratio
}

// Load reads a folder and judges its events again.
func Load(dir string) (Report, error) {
	m, err := record.ReadManifest(dir)
	if err != nil {
		return Report{}, err
	}
	results, err := record.ReadResults(dir)
	if err != nil {
		return Report{}, fmt.Errorf("report: %w", err)
	}
	v, err := check.Dir(dir)
	if err != nil {
		return Report{}, fmt.Errorf("report: %w", err)
	}
	return Report{Dir: dir, Manifest: m, Verdict: v, Tables: tables(m, results)}, nil
}

type cellKey struct {
	scenario, mode string
	hosts, clients int
	backend        string
}

// tables groups the lines by cell, and cells by scenario and clients.
func tables(m record.Manifest, results []record.Result) []Table {
	runs := map[cellKey]map[string][]float64{}
	for _, r := range results {
		key := cellKey{r.Scenario, r.Mode, r.Hosts, r.Clients, r.Backend}
		if runs[key] == nil {
			runs[key] = map[string][]float64{}
		}
		for unit, v := range r.Values {
			runs[key][unit] = append(runs[key][unit], v)
		}
	}
	byTable := map[cellKey]*Table{}
	for key := range runs {
		key.backend = ""
		byTable[key] = &Table{Scenario: key.scenario, Mode: key.mode, Hosts: key.hosts, Clients: key.clients}
	}
	var out []Table
	for key, t := range byTable {
		for _, s := range m.Subjects {
			own, reference := key, key
			own.backend, reference.backend = s.Name, s.Reference
			if values, ok := runs[own]; ok {
				t.Rows = append(t.Rows, row(s, values, runs[reference]))
			}
		}
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b Table) int {
		return cmp.Or(cmp.Compare(a.Scenario, b.Scenario), cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Hosts, b.Hosts), cmp.Compare(a.Clients, b.Clients))
	})
	return foldFloors(out)
}

// foldFloors puts the rows of floors below the tables with as many clients.
func foldFloors(all []Table) []Table {
	floors := map[int][]Row{}
	var out []Table
	for _, t := range all {
		if t.Scenario == floorScenario {
			floors[t.Clients] = t.Rows
			continue
		}
		out = append(out, t)
	}
	for i, t := range out {
		if t.Scenario == acquireScenario {
			out[i].Floors = floors[t.Clients]
		}
	}
	return out
}

// Scenarios that are shown in a way of their own: floors stand below the
// tables of acquire.
const (
	acquireScenario = "acquire"
	floorScenario   = "floor"
)

func row(s record.Subject, values, reference map[string][]float64) Row {
	r := Row{Subject: s, Figures: map[string]stat.Estimate{}, Ratios: map[string]stat.Ratio{}}
	for unit, v := range values {
		r.Figures[unit] = stat.Median(v)
		if ref, ok := reference[unit]; ok && s.Reference != s.Name {
			r.Ratios[unit] = stat.Compare(v, ref)
		}
	}
	return r
}

// Safe says in one line what the verdict is.
func (r Report) Safe() string {
	v := r.Verdict
	switch {
	case v.Unsafe() > 0:
		return fmt.Sprintf("UNSAFE: %d violations in %d grants", v.Unsafe(), v.Granted())
	case v.Granted() == 0:
		return "INVALID: nothing was granted, so nothing was checked"
	}
	if len(v.Cells) > 0 {
		return fmt.Sprintf("safe: %s grants under faults checked, no claim of a backend is broken", grouped(float64(v.Granted())))
	}
	return fmt.Sprintf("safe: %s grants checked, no two holders at once, every token higher than those before it", grouped(float64(v.Granted())))
}

// Headline compares our backends with their references in one line each, at
// the fewest and the most clients.
func (r Report) Headline() []string {
	var out []string
	at := map[string][]string{}
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			if row.Kind != record.KindPlugin || row.Reference == "" || t.Scenario != acquireScenario {
				continue
			}
			unit, what := "cycles/s", "cycles/s"
			if t.Clients == 1 {
				unit, what = "p50-ns/acquire", "acquire p50"
			}
			if ratio, ok := row.Ratios[unit]; ok {
				at[row.Name] = append(at[row.Name], fmt.Sprintf("%s at %s %s", what, plural(t.Clients, "client"), Times(ratio)))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		reference := r.Manifest.Subject(name).Reference
		out = append(out, fmt.Sprintf("%s through its plugin / %s in process: %s", name, reference, strings.Join(at[name], "; ")))
	}
	return out
}
