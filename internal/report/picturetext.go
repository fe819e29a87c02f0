package report

import (
	"math"
	"strings"
	"unicode/utf8"
)

// picture draws for a terminal what the page draws. Where an interval is not
// seen, the table of the choice says what the runs support.
func (p *printer) picture(pic picture) {
	if len(pic.Lanes) == 0 {
		return
	}
	p.heading(pic.Title)
	if p.markdown {
		p.WriteString("```\n")
	}
	p.drawn(newCanvas().ticks(pic.Ticks))
	for _, l := range pic.Lanes {
		p.drawn(canvas(strings.TrimSuffix(l.Tokens+" · "+l.Durability, " · ")))
		for _, row := range l.Rows {
			p.drawn(newCanvas().marks(row))
		}
	}
	if p.markdown {
		p.WriteString("```\n")
	}
	p.note("● candidate, ○ baseline, or locks that other hosts do not see. Further to the right is faster, further up promises more.")
	p.note(pic.Answer)
}

func (p *printer) drawn(c canvas) {
	p.WriteString(strings.TrimRight("  "+string(c), " ") + "\n")
}

// canvas is one line of a picture in text.
type canvas []rune

func newCanvas() canvas { return canvas(strings.Repeat(" ", textWidth-2)) }

func (c canvas) column(percent float64) int {
	return int(math.Round(percent / 100 * float64(len(c)-1)))
}

// put writes text from a column on, and moves it to where there is room for it.
func (c canvas) put(column int, text string) {
	n := utf8.RuneCountInString(text)
	copy(c[max(0, min(column, len(c)-n)):], []rune(text))
}

func (c canvas) ticks(all []tick) canvas {
	for _, t := range all {
		c.put(c.column(t.At)-utf8.RuneCountInString(t.Text)/2, t.Text)
	}
	return c
}

func (c canvas) marks(all marks) canvas {
	for _, m := range all {
		point := "●"
		if m.Pale {
			point = "○"
		}
		at, label := c.column(m.At), m.Label()
		if m.Left {
			c.put(at-utf8.RuneCountInString(label)-1, label+" "+point)
			continue
		}
		c.put(at, point+" "+label)
	}
	return c
}
