package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// textWidth is what the text fits into: a terminal of 80 columns.
const textWidth = 80

// Text writes the report for a terminal of 80 columns.
func (r Report) Text(w io.Writer) error {
	p := &printer{}
	r.print(p)
	_, err := io.WriteString(w, p.String())
	return err
}

// Markdown writes the same as Markdown.
func (r Report) Markdown(w io.Writer) error {
	p := &printer{markdown: true}
	r.print(p)
	_, err := io.WriteString(w, p.String())
	return err
}

// print writes the verdict first: no figure stands above it.
func (r Report) print(p *printer) {
	p.strong(r.Safe())
	p.lines(r.findings())
	p.lines(r.warnings())
	p.grid(r.safetyTable())
	p.lines(r.safetyNotes())
	p.answer(r.answer())
	p.grid(r.shares())
	p.grid(r.summary())
	for _, t := range slices.Concat(r.Tables, r.Floors) {
		p.grid(r.grid(t))
	}
	if lines := r.remarks(); len(lines) > 0 {
		p.heading("notes")
		p.lines(lines)
	}
	p.heading("how to reproduce")
	p.command(r.command())
	p.note(r.where())
}

// printer writes text or Markdown.
type printer struct {
	strings.Builder
	markdown bool
}

func (p *printer) heading(text string) {
	if p.Len() > 0 {
		p.WriteByte('\n')
	}
	if p.markdown {
		fmt.Fprintf(p, "### %s\n\n", text)
		return
	}
	fmt.Fprintf(p, "%s\n", wrap(text, textWidth, ""))
}

func (p *printer) strong(text string) {
	if p.markdown {
		fmt.Fprintf(p, "**%s**\n", text)
		return
	}
	fmt.Fprintf(p, "%s\n", wrap(text, textWidth, "  "))
}

func (p *printer) lines(all []string) {
	if p.markdown && len(all) > 0 && !strings.HasSuffix(p.String(), "\n\n") {
		p.WriteByte('\n')
	}
	for _, line := range all {
		if p.markdown {
			fmt.Fprintf(p, "- %s\n", line)
			continue
		}
		fmt.Fprintf(p, "  %s\n", wrap(line, textWidth-2, "    "))
	}
}

func (p *printer) note(text string) {
	switch {
	case text == "":
	case p.markdown:
		fmt.Fprintf(p, "\n%s\n", text)
	default:
		fmt.Fprintf(p, "  %s\n", wrap(text, textWidth-2, "  "))
	}
}

// command is not wrapped: it is there to be copied.
func (p *printer) command(text string) {
	if p.markdown {
		fmt.Fprintf(p, "```sh\n%s\n```\n", text)
		return
	}
	fmt.Fprintf(p, "  %s\n", strings.ReplaceAll(wrap(text, textWidth-4, "    "), "\n", " \\\n"))
}

// wrap breaks text between words, at width characters; all lines but the first
// begin with indent.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
