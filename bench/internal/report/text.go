package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// textWidth is the width of text output in characters. It is the width of a common terminal.
const textWidth = 80

// WriteVerdict writes, as text, the part of the report that says whether the run was safe.
func (r Report) WriteVerdict(w io.Writer) error { return printed(w, "text", r.verdict) }

func (r Report) verdict(p *printer) {
	p.strong(r.Safe())
	p.lines(r.findings())
	p.lines(r.warnings())
	p.grid(r.safetyTable())
	p.lines(r.safetyNotes())
}

// print writes the report. The verdict stands first, above the figures.
func (r Report) print(p *printer) {
	r.verdict(p)
	p.answer(r.answer())
	p.grid(r.shares())
	p.grid(r.summary())
	p.grid(r.roundTrips())
	for _, s := range r.scenarios() {
		for _, g := range r.grids(s.all) {
			p.grid(g)
		}
	}
	if lines := r.remarks(); len(lines) > 0 {
		p.heading("notes")
		p.lines(lines)
	}
	p.heading("how to reproduce")
	p.command(r.command())
	p.note(r.where())
}

type printer struct {
	strings.Builder
	markdown bool
}

func printed(w io.Writer, format string, print func(*printer)) error {
	p := &printer{markdown: format == "md"}
	print(p)
	_, err := io.WriteString(w, p.String())
	return err
}

// line writes the first parameter in a Markdown report, and otherwise the second.
func (p *printer) line(markdown, text string) {
	if p.markdown {
		text = markdown
	}
	fmt.Fprintln(p, text)
}

func (p *printer) heading(text string) {
	if p.Len() > 0 {
		p.WriteByte('\n')
	}
	p.line("### "+text+"\n", Wrap(text, textWidth, ""))
}

func (p *printer) strong(text string) { p.line("**"+text+"**", Wrap(text, textWidth-2, "  ")) }

func (p *printer) lines(all []string) {
	if p.markdown && len(all) > 0 && !strings.HasSuffix(p.String(), "\n\n") {
		p.WriteByte('\n')
	}
	for _, text := range all {
		p.line("- "+text, "  "+Wrap(text, textWidth-4, "    "))
	}
}

func (p *printer) note(text string) {
	if text != "" {
		p.line("\n"+text, "  "+Wrap(text, textWidth-2, "  "))
	}
}

// command writes a command line that readers can copy: a backslash precedes each line break.
func (p *printer) command(text string) {
	p.line("```sh\n"+text+"\n```", "  "+strings.ReplaceAll(Wrap(text, textWidth-6, "    "), "\n", " \\\n"))
}

// Wrap breaks text between words into lines of at most width characters. All lines but the first
// begin with indent, which does not count as width.
func Wrap(text string, width int, indent string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i > 0 && column+n > width:
			b.WriteString("\n" + indent)
			column = 0
		case i > 0:
			b.WriteByte(' ')
		}
		b.WriteString(word)
		column += n + 1
	}
	return b.String()
}

// grid writes a table. If the table is wider than a terminal, grid splits its columns over several
// tables. Each of these begins with the columns that identify a row.
func (p *printer) grid(g grid) {
	if len(g.Rows) == 0 || len(g.Columns) == 0 {
		return
	}
	p.heading(g.Title)
	parts := []grid{g}
	if !p.markdown {
		parts = g.parts(textWidth - 2)
	}
	for i, part := range parts {
		if i > 0 {
			p.WriteByte('\n')
		}
		p.part(part)
	}
	p.note(g.Note)
}

func (g grid) widths() []int {
	out := make([]int, len(g.Columns))
	for i, c := range g.Columns {
		out[i] = utf8.RuneCountInString(c.Title)
		for _, row := range g.Rows {
			out[i] = max(out[i], utf8.RuneCountInString(row[i].Text))
		}
	}
	return out
}

// parts splits the columns of table g over several tables of at most width characters.
func (g grid) parts(width int) []grid {
	widths, keys := g.widths(), max(1, g.Keys)
	from := keys // the first column of the part, after the key columns
	var out []grid
	for i := keys + 1; i < len(widths); i++ {
		total := -2
		for _, w := range slices.Concat(widths[:keys], widths[from:i+1]) {
			total += w + 2
		}
		if total > width {
			out = append(out, g.part(keys, from, i))
			from = i
		}
	}
	return append(out, g.part(keys, from, len(widths)))
}

// part returns a table with the key columns and the columns of g from one to another. It leaves out
// rows that have text only in key columns.
func (g grid) part(keys, from, to int) grid {
	out := grid{Columns: slices.Concat(g.Columns[:keys], g.Columns[from:to])}
	for _, row := range g.Rows {
		if slices.ContainsFunc(row[from:to], func(c cell) bool { return c.Text != "" }) {
			out.Rows = append(out.Rows, slices.Concat(row[:keys], row[from:to]))
		}
	}
	return out
}

// rule returns the line of dashes below the titles of a Markdown table.
func (g grid) rule() string {
	var out strings.Builder
	for i, width := range g.widths() {
		dashes := strings.Repeat("-", max(3, width))
		if g.Columns[i].Number {
			dashes = strings.Repeat("-", max(2, width-1)) + ":"
		}
		out.WriteString("| " + dashes + " ")
	}
	return out.String() + "|"
}

func (p *printer) part(g grid) {
	left, between, right, escape := "  ", "  ", "", strings.NewReplacer()
	if p.markdown {
		left, between, right, escape = "| ", " | ", " |", strings.NewReplacer("|", `\|`)
	}
	widths := g.widths()
	write := func(text func(i int) string) {
		padded := make([]string, len(widths))
		for i, width := range widths {
			if !g.Columns[i].Number {
				width = -width // aligned left
			}
			padded[i] = fmt.Sprintf("%*s", width, text(i))
		}
		fmt.Fprintln(p, strings.TrimRight(left+strings.Join(padded, between)+right, " "))
	}
	write(func(i int) string { return g.Columns[i].Title })
	if p.markdown {
		fmt.Fprintln(p, g.rule())
	}
	for _, row := range g.Rows {
		write(func(i int) string { return escape.Replace(row[i].Text) })
	}
}
