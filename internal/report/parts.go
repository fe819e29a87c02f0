package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/results"
)

// parts says from what a folder was merged.
func (r Report) parts() []string {
	parts := r.Manifest.Parts
	if len(parts) == 0 {
		return nil
	}
	out := []string{fmt.Sprintf("merged from %d runs of lockbench", len(parts))}
	if t := r.Manifest.Together; t != nil {
		out = []string{fmt.Sprintf("%d parts measured at the same time: rates are of all of them together, clients are those of each", len(parts)), overlapping(*t)}
	}
	for i, p := range parts {
		line := fmt.Sprintf("part %d: %s from %s, seed %d", i+1, plural(p.Runs, "run"), p.Started.Format("2006-01-02 15:04 UTC"), p.Seed)
		if r.Manifest.Together != nil {
			end := p.Started.Add(time.Duration(p.Elapsed * float64(time.Second)))
			line = fmt.Sprintf("part %d: from %s to %s UTC", i+1, p.Started.Format("2006-01-02 15:04:05"), end.Format("15:04:05"))
		}
		if p.Machine != parts[0].Machine {
			line += fmt.Sprintf(", on another machine: %d cores, %s", p.Machine.Cores, p.Machine.CPU)
		}
		out = append(out, line)
	}
	return out
}

func overlapping(t results.Together) string {
	line := fmt.Sprintf("every cell was measured by all parts at once for %.0f %% of its time at least", 100*t.Overlap)
	if !t.Met {
		return line + ", if the clocks of their machines agree"
	}
	apart := time.Duration(t.Clocks * float64(time.Second)).Round(time.Millisecond)
	return line + fmt.Sprintf("; they waited for each other on the store, so their clocks, up to %v apart, do not matter", apart)
}

// shares are the cycles per second of all parts together, and what each of them
// had of that.
func (r Report) shares() grid {
	g := grid{
		Title:   "the total on the target, and each part's share of it (cycles/s, medians)",
		Columns: []gridColumn{{"cell", false}, {"all together", true}},
	}
	if r.Manifest.Together == nil {
		return g
	}
	for i := range r.Manifest.Parts {
		g.Columns = append(g.Columns, gridColumn{fmt.Sprintf("part %d", i+1), true})
	}
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			if _, ok := row.Figures["cycles/s"]; !ok {
				continue
			}
			words := filter([]string{row.Name, t.Scenario, t.load()}, said)
			line := gridRow{{Text: strings.Join(words, ", "), ours: row.Kind == results.KindPlugin}, figure("cycles/s", false)(row)}
			for _, share := range sharesOf(t.cellOf(row).Name(), r.Manifest.Parts) {
				line = append(line, word(share))
			}
			g.Rows = append(g.Rows, line)
		}
	}
	return g
}

// sharesOf is what each part had of the cycles of a cell.
func sharesOf(cell string, parts []results.Part) []string {
	var each []float64
	sum := 0.0
	for _, p := range parts {
		v := results.Median(p.Rates[cell]).Center
		each, sum = append(each, v), sum+v
	}
	out := make([]string, len(parts))
	for i, v := range each {
		if sum > 0 {
			out[i] = fmt.Sprintf("%s (%.0f %%)", grouped(v), 100*v/sum)
		}
	}
	return out
}
