package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// grid writes a table. One that is wider than the terminal is written in
// parts, each of which begins with the columns that say what a row is about.
func (p *printer) grid(g grid) {
	if len(g.Rows) == 0 || len(g.Columns) == 0 {
		return
	}
	p.heading(g.Title)
	if p.markdown {
		p.part(g, "| ", " | ", " |")
	} else {
		for i, part := range g.parts(textWidth - 2) {
			if i > 0 {
				p.WriteByte('\n')
			}
			p.part(part, "  ", "  ", "")
		}
	}
	p.note(g.Note)
}

// widths are those of the columns.
func (g grid) widths() []int {
	out := make([]int, len(g.Columns))
	for i, c := range g.Columns {
		out[i] = utf8.RuneCountInString(c.Title)
		for _, row := range g.Rows {
			out[i] = max(out[i], utf8.RuneCountInString(row.Cells[i].Text))
		}
	}
	return out
}

// parts splits g into tables of at most width characters with two between
// columns.
func (g grid) parts(width int) []grid {
	widths := g.widths()
	keys, keyed := []int{}, -2 // and their width
	for i := range max(1, g.Keys) {
		keys, keyed = append(keys, i), keyed+2+widths[i]
	}
	var out []grid
	chosen, used := slices.Clone(keys), keyed
	for i := len(keys); i < len(g.Columns); i++ {
		if len(chosen) > len(keys) && used+2+widths[i] > width {
			out = append(out, g.only(chosen))
			chosen, used = slices.Clone(keys), keyed
		}
		chosen, used = append(chosen, i), used+2+widths[i]
	}
	return append(out, g.only(chosen))
}

// only is g with some of its columns, and without rows that say nothing in
// them.
func (g grid) only(columns []int) grid {
	out := grid{Title: g.Title, Note: g.Note}
	for _, i := range columns {
		out.Columns = append(out.Columns, g.Columns[i])
	}
	for _, row := range g.Rows {
		part, says := gridRow{Kind: row.Kind}, false
		for n, i := range columns {
			part.Cells = append(part.Cells, row.Cells[i])
			says = says || n >= max(1, g.Keys) && row.Cells[i].Text != ""
		}
		if says {
			out.Rows = append(out.Rows, part)
		}
	}
	return out
}

func (p *printer) part(g grid, left, between, right string) {
	widths := g.widths()
	write := func(text func(i int) string) {
		padded := make([]string, len(widths))
		for i, width := range widths {
			padded[i] = pad(text(i), width, g.Columns[i].Number)
		}
		fmt.Fprintln(p, strings.TrimRight(left+strings.Join(padded, between)+right, " "))
	}
	write(func(i int) string { return g.Columns[i].Title })
	if p.markdown {
		write(func(i int) string {
			if g.Columns[i].Number {
				return strings.Repeat("-", max(2, widths[i]-1)) + ":"
			}
			return strings.Repeat("-", max(3, widths[i]))
		})
	}
	for _, row := range g.Rows {
		write(func(i int) string { return p.escape(row.Cells[i].Text) })
	}
}

// escape keeps a cell of Markdown in its column.
func (p *printer) escape(text string) string {
	if p.markdown {
		return strings.ReplaceAll(text, "|", `\|`)
	}
	return text
}

func pad(s string, width int, right bool) string {
	fill := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
	if right {
		return fill + s
	}
	return s + fill
}
