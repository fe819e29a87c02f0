package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/lockbench/lockbench/bench/record"
)

// Text writes the report for a terminal.
func (r Report) Text(w io.Writer) error {
	var b strings.Builder
	for _, t := range r.Tables {
		fmt.Fprintf(&b, "%s\n", r.title(t))
		writeTable(&b, t, "  ", "  ", false)
		if f := t.floors(); f != "" {
			fmt.Fprintf(&b, "  %s\n", f)
		}
		b.WriteByte('\n')
	}
	for _, line := range r.closing() {
		fmt.Fprintln(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown writes the report as Markdown.
func (r Report) Markdown(w io.Writer) error {
	var b strings.Builder
	for _, t := range r.Tables {
		fmt.Fprintf(&b, "### %s\n\n", r.title(t))
		writeTable(&b, t, "| ", " | ", true)
		if f := t.floors(); f != "" {
			fmt.Fprintf(&b, "\n%s\n", f)
		}
		b.WriteByte('\n')
	}
	for _, line := range r.closing() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeTable(b *strings.Builder, t Table, left, between string, rule bool) {
	cols := columns(t)
	cells := make([][]string, len(t.Rows)+1)
	width := make([]int, len(cols))
	for i, c := range cols {
		cells[0] = append(cells[0], c.title)
		for j, row := range t.Rows {
			cells[j+1] = append(cells[j+1], c.text(row))
		}
		for j := range cells {
			width[i] = max(width[i], utf8.RuneCountInString(cells[j][i]))
		}
	}
	right := strings.TrimRight(between, " ")
	for j, line := range cells {
		padded := make([]string, len(cols))
		for i, c := range cols {
			padded[i] = pad(line[i], width[i], c.number)
		}
		text := left + strings.Join(padded, between)
		if right != "" {
			text += " " + strings.TrimSpace(right)
		}
		fmt.Fprintln(b, strings.TrimRight(text, " "))
		if j == 0 && rule {
			writeRule(b, cols, width)
		}
	}
}

// writeRule is the line of Markdown below the titles.
func writeRule(b *strings.Builder, cols []column, width []int) {
	for i, c := range cols {
		dashes := strings.Repeat("-", max(3, width[i]))
		if c.number {
			dashes = dashes[1:] + ":"
		}
		fmt.Fprintf(b, "| %s ", dashes)
	}
	fmt.Fprintln(b, "|")
}

func pad(s string, width int, right bool) string {
	fill := strings.Repeat(" ", width-utf8.RuneCountInString(s))
	if right {
		return fill + s
	}
	return s + fill
}

// closing are the lines below the tables: comparison, verdict, and what was
// left out.
func (r Report) closing() []string {
	out := r.Headline()
	out = append(out, r.Safe())
	for _, v := range r.Verdict.Violations {
		out = append(out, v.String())
	}
	for _, s := range r.Verdict.Subjects {
		if s.Failed > 0 {
			out = append(out, fmt.Sprintf("%s: %d of %d attempts failed", s.Backend, s.Failed, s.Attempts))
		}
	}
	if r.Verdict.Truncated != nil {
		out = append(out, r.Verdict.Truncated.Error())
	}
	for _, f := range r.Manifest.Findings {
		out = append(out, "finding: "+f)
	}
	out = append(out, r.Manifest.Notes...)
	for _, s := range r.Manifest.Skipped {
		out = append(out, "left out: "+s)
	}
	switch r.Manifest.State {
	case record.StateInterrupted:
		out = append(out, "the run was interrupted; this is what it had measured")
	case record.StateRunning:
		out = append(out, "the run is still going on, or was killed; this is what it had measured")
	case record.StateFailed:
		out = append(out, "the run failed: "+r.Manifest.Failure)
	}
	return append(out, r.where())
}

// where says on what and when it was measured.
func (r Report) where() string {
	m := r.Manifest
	parts := []string{m.Started.Format("2006-01-02 15:04 UTC"), fmt.Sprintf("%d cores", m.Machine.Cores), m.Machine.CPU, m.Machine.Kernel, m.Machine.Go}
	if m.Plan.Env == "compose" {
		parts = append(parts, "servers in containers")
	}
	seen := map[string]bool{}
	for _, s := range m.Subjects {
		if s.Server != "" && s.Scope != "host" && !seen[s.Server] {
			seen[s.Server] = true
			parts = append(parts, s.Server)
		}
	}
	kept := parts[:0]
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return fmt.Sprintf("measured %s, seed %d, TTL %d ms", strings.Join(kept, ", "), m.Plan.Seed, m.Plan.TTLms)
}
