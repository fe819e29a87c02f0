package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/internal/stat"
)

// ComparisonText writes a comparison for a terminal: a table for each unit.
func ComparisonText(w io.Writer, c stat.Comparison) error {
	return writeComparison(w, c, "%s\n", "  ", "  ", false)
}

// ComparisonMarkdown writes a comparison as Markdown.
func ComparisonMarkdown(w io.Writer, c stat.Comparison) error {
	return writeComparison(w, c, "### %s\n\n", "| ", " | ", true)
}

func writeComparison(w io.Writer, c stat.Comparison, heading, left, between string, rule bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "old: %s\nnew: %s\n\n", c.Old, c.New)
	for _, title := range titlesOf(c) {
		cells := [][]string{{"", "old", "new", "change", "effect", "p", ""}}
		for _, d := range c.Rows {
			if shown(d) && titleOf(d) == title {
				cells = append(cells, differenceCells(d))
			}
		}
		fmt.Fprintf(&b, heading, title)
		writeGrid(&b, cells, left, between, rule)
		b.WriteByte('\n')
	}
	for _, line := range comparisonNotes(c) {
		fmt.Fprintln(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shown leaves out what is the same in both builds, unless it has changed.
func shown(d stat.Difference) bool { return !d.Control || d.Worse() || d.Improved() }

func titleOf(d stat.Difference) string {
	scenario, _, _ := strings.Cut(ShortCell(d.Cell), " ")
	return scenario + ", " + d.Unit
}

func titlesOf(c stat.Comparison) []string {
	var out []string
	for _, d := range c.Rows {
		if shown(d) && !slices.Contains(out, titleOf(d)) {
			out = append(out, titleOf(d))
		}
	}
	return out
}

func differenceCells(d stat.Difference) []string {
	change, judgement := unsupported, ""
	if d.Supported {
		change = percent(d.Delta)
	}
	switch {
	case d.Worse():
		judgement = "worse"
	case d.Improved():
		judgement = "better"
	}
	if d.Control {
		judgement = strings.TrimSpace("same in both " + judgement)
	}
	_, cell, _ := strings.Cut(ShortCell(d.Cell), " ")
	return []string{
		cell, Value(d.Unit, d.Old), Value(d.Unit, d.New), change,
		fmt.Sprintf("%+.2f", d.Effect), probability(d.Adjusted), judgement,
	}
}

// ShortCell is the name of a cell without what every name has.
func ShortCell(cell string) string {
	cell = strings.Replace(cell, "/backend=", " ", 1)
	return strings.ToLower(cell[:min(1, len(cell))]) + strings.ReplaceAll(cell[min(1, len(cell)):], "/", " ")
}

func percent(fraction float64) string {
	if math.IsInf(fraction, 0) {
		return "from 0"
	}
	return fmt.Sprintf("%+.0f%%", 100*fraction)
}

func probability(p float64) string {
	if p < 0.001 {
		return "<0.001"
	}
	return fmt.Sprintf("%.3f", p)
}

// comparisonNotes says what the table means, and what casts doubt on it.
func comparisonNotes(c stat.Comparison) []string {
	worse, better, tested := 0, 0, 0
	for _, d := range c.Rows {
		switch {
		case d.Control:
			continue
		case d.Worse():
			worse++
		case d.Improved():
			better++
		}
		tested++
	}
	out := []string{fmt.Sprintf("%s: %d worse, %d better; p is of the U test, corrected for all of them (Holm), and ~ a difference that it does not support",
		plural(tested, "row"), worse, better)}
	for _, w := range c.Warnings {
		out = append(out, "warning: "+w)
	}
	return out
}

// difference is one row as JSON has it.
type difference struct {
	Cell      string   `json:"cell"`
	Unit      string   `json:"unit"`
	Control   bool     `json:"same_in_both,omitempty"`
	OldRuns   int      `json:"old_runs"`
	NewRuns   int      `json:"new_runs"`
	Old       float64  `json:"old"`
	OldLow    *float64 `json:"old_low"`
	OldHigh   *float64 `json:"old_high"`
	New       float64  `json:"new"`
	NewLow    *float64 `json:"new_low"`
	NewHigh   *float64 `json:"new_high"`
	Change    *float64 `json:"change"` // of the medians, as a fraction; null from 0
	Effect    float64  `json:"cliffs_delta"`
	P         float64  `json:"p"`
	Adjusted  float64  `json:"p_holm"`
	Supported bool     `json:"supported"`
	Worse     bool     `json:"worse"`
	Better    bool     `json:"better"`
	Warnings  []string `json:"warnings,omitempty"`
}

// ComparisonJSON writes a comparison for programs.
func ComparisonJSON(w io.Writer, c stat.Comparison) error {
	doc := struct {
		Old      string       `json:"old"`
		New      string       `json:"new"`
		Rows     []difference `json:"rows"`
		Warnings []string     `json:"warnings"`
	}{Old: c.Old, New: c.New, Rows: []difference{}, Warnings: append([]string{}, c.Warnings...)}
	for _, d := range c.Rows {
		doc.Rows = append(doc.Rows, difference{
			Cell: d.Cell, Unit: d.Unit, Control: d.Control, OldRuns: d.Old.N, NewRuns: d.New.N,
			Old: d.Old.Center, OldLow: finite(d.Old.Lo), OldHigh: finite(d.Old.Hi),
			New: d.New.Center, NewLow: finite(d.New.Lo), NewHigh: finite(d.New.Hi),
			Change: finite(d.Delta), Effect: d.Effect, P: d.P, Adjusted: d.Adjusted,
			Supported: d.Supported, Worse: d.Worse(), Better: d.Improved(), Warnings: d.Warnings,
		})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}
