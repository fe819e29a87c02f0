package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// WriteComparison writes a comparison, with a table for each unit. The format is "text" for a
// terminal, or "md" for Markdown.
func WriteComparison(w io.Writer, c results.Comparison, format string) error {
	return printed(w, format, func(p *printer) { p.comparison(c) })
}

func (p *printer) comparison(c results.Comparison) {
	if c.Old != "" {
		fmt.Fprintf(p, "old: %s\nnew: %s\n", c.Old, c.New)
	}
	for _, g := range groups(filter(c.Rows, shown), titleOf) {
		p.heading(g.key)
		p.part(tabulate(grid{}, differenceColumns, g.all))
	}
	if c.Old != "" {
		p.WriteByte('\n')
		for _, line := range comparisonNotes(c) {
			fmt.Fprintln(p, line)
		}
	}
	p.grid(tabulate(grid{Title: "limits"}, heldColumns, c.Held))
}

// shown reports whether the comparison shows a row. A row about a baseline or a floor, which is the
// same in both builds, is shown only if its figure changed.
func shown(d results.Difference) bool { return !d.Control || d.Worse() || d.Improved() }

func titleOf(d results.Difference) string {
	scenario, _, _ := strings.Cut(ShortCell(d.Cell), " ")
	return scenario + ", " + d.Unit
}

var differenceColumns = []column[results.Difference]{
	textColumn("", cellWithin),
	numberColumn("old", func(d results.Difference) cell { return word(value(d.Unit, d.Old)) }),
	numberColumn("new", func(d results.Difference) cell { return word(value(d.Unit, d.New)) }),
	numberColumn("change", func(d results.Difference) cell { return word(change(d)) }),
	numberColumn("p", func(d results.Difference) cell { return word(probability(d.Adjusted)) }),
	textColumn("", judgement),
}

func cellWithin(d results.Difference) string {
	_, cell, _ := strings.Cut(ShortCell(d.Cell), " ")
	return cell
}

func change(d results.Difference) string {
	if !d.Supported {
		return unsupported
	}
	return percent(d.Delta)
}

func judgement(d results.Difference) string {
	out := ""
	switch {
	case d.Worse():
		out = "worse"
	case d.Improved():
		out = "better"
	}
	if d.Control {
		out = strings.TrimSpace("same in both " + out)
	}
	return out
}

// ShortCell shortens the name of a cell, which is one backend under one load. It drops "backend=",
// and replaces slashes by spaces.
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

func comparisonNotes(c results.Comparison) []string {
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

var heldColumns = []column[results.Held]{
	textColumn("figure", held),
	numberColumn("measured", func(h results.Held) cell { return word(measured(h)) }),
	textColumn("limit", results.Held.Limit),
	textColumn("", outcome),
}

func held(h results.Held) string {
	out := ShortCell(h.Row.Cell) + ": " + h.Figure()
	if h.Rows > 1 {
		out += fmt.Sprintf(" (worst of %d)", h.Rows)
	}
	return out
}

func outcome(h results.Held) string {
	if h.Broken {
		return "missed"
	}
	return "ok"
}

// measured returns the value that was compared with a limit and, for a median, its interval.
func measured(h results.Held) string {
	shown := func(v float64) string {
		if h.IsRatio() {
			return significant(v, 3)
		}
		return bare(h.Row.Unit, v)
	}
	out := shown(h.Value)
	if h.Measured.Bounded() && h.Value == h.Measured.Center {
		out += fmt.Sprintf(" [%s %s]", shown(h.Measured.Lo), shown(h.Measured.Hi))
	}
	return out
}

func HeldLine(h results.Held) string {
	return fmt.Sprintf("%s is %s, wanted %s", held(h), measured(h), h.Limit())
}
