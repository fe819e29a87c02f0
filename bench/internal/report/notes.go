package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// headed returns a heading for lines that the page hides until the reader opens them. The heading
// consists of the beginnings of the lines, each up to its first colon.
func headed(lines []string) string {
	heads := distinct(lines, func(line string) string {
		head, _, _ := strings.Cut(line, ": ")
		return head
	})
	return "Before you believe the figures: " + strings.Join(heads, "; ")
}

// shownFindings is how many findings the page shows before the reader asks for more.
const shownFindings = 3

// omissions says what the run left out. It returns one line for each reason.
func (r Report) omissions() []string {
	byReason := groups(r.Manifest.Skipped, func(s string) string {
		subject, reason, _ := strings.Cut(s, ": ")
		return cmp.Or(reason, subject)
	})
	var out []string
	for _, g := range byReason {
		for i, s := range g.all {
			g.all[i] = strings.TrimSuffix(s, ": "+g.key)
		}
		subjects := filter(g.all, func(s string) bool { return s != g.key })
		out = append(out, "left out: "+strings.TrimPrefix(listed(subjects)+": "+g.key, ": "))
	}
	return out
}

// refusals names the backends whose figures of the open loop (calls at a fixed rate) are not shown.
// In runs of these backends, calls were dropped or started late.
func (r Report) refusals() []string {
	var cells []string
	for _, t := range r.of(acquireScenario) {
		for _, row := range t.Rows {
			if row.refused() {
				cells = append(cells, row.Name+" at "+t.load())
			}
		}
	}
	if len(cells) == 0 {
		return nil
	}
	return []string{"no figures of the open loop, because calls were dropped or started late, for " + listed(cells)}
}

// parts describes the runs (parts) that were merged into the report's folder.
func (r Report) parts() []string {
	t, parts := r.Manifest.Together, r.Manifest.Parts
	if t == nil {
		return nil
	}
	apart := time.Duration(t.Clocks * float64(time.Second)).Round(time.Millisecond)
	out := []string{
		fmt.Sprintf("%d parts measured at the same time: rates are of all of them together, clients are those of each", len(parts)),
		fmt.Sprintf("every cell was measured by all parts at once for %.0f %% of its time at least; they waited for each other on the store, so their clocks, up to %v apart, do not matter",
			100*t.Overlap, apart),
	}
	for i, p := range parts {
		end := p.Started.Add(time.Duration(p.Elapsed * float64(time.Second)))
		line := fmt.Sprintf("part %d: from %s to %s UTC", i+1, p.Started.Format("2006-01-02 15:04:05"), end.Format("15:04:05"))
		if p.Machine != parts[0].Machine {
			line += fmt.Sprintf(", on another machine: %d cores, %s", p.Machine.Cores, p.Machine.CPU)
		}
		out = append(out, line)
	}
	return out
}

// shares returns a table of the cycles per second of all merged runs (parts), and of each alone.
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
			line := gridRow{{Text: joined(row.Name, t.Scenario, t.load()), ours: row.Kind == results.KindPlugin}, figure("cycles/s", false)(row)}
			for _, share := range sharesOf(t.cellOf(row).Name(), r.Manifest.Parts) {
				line = append(line, word(share))
			}
			g.Rows = append(g.Rows, line)
		}
	}
	return g
}

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
