package report

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// answer draws for a terminal what the page draws. Where an interval is not seen,
// the choices say what the runs support.
func (p *printer) answer(a answer) {
	p.drawing(a.Drawing)
	if len(a.Choices) == 0 {
		return
	}
	p.heading("which one should I use")
	for _, c := range a.Choices {
		text := c.Need + ": " + c.Measured
		if len(c.Take) > 0 {
			text = fmt.Sprintf("%s: %s (%s)", c.Need, strings.Join(c.Take, " or "), c.Measured)
		}
		if c.Others != "" {
			text += "; " + c.Others
		}
		p.lines([]string{text})
	}
	p.note(a.Note)
}

func (p *printer) drawing(d drawing) {
	if len(d.Lanes) == 0 {
		return
	}
	p.heading(d.Title)
	if p.markdown {
		p.WriteString("```\n")
	}
	p.drawn(newCanvas().ticks(d.Ticks))
	for _, l := range d.Lanes {
		p.drawn(canvas(strings.TrimSuffix(l.Tokens+" · "+l.Durability, " · ")))
		for _, m := range l.Marks {
			p.drawn(newCanvas().mark(m))
		}
	}
	if p.markdown {
		p.WriteString("```\n")
	}
	p.note("● candidate, ○ baseline, or locks that other hosts do not see. Further to the right is faster, further up promises more.")
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

func (c canvas) mark(m mark) canvas {
	point := "●"
	if m.Pale {
		point = "○"
	}
	at := c.column(m.At)
	if m.Left() {
		c.put(at-utf8.RuneCountInString(m.Label)-1, m.Label+" "+point)
		return c
	}
	c.put(at, point+" "+m.Label)
	return c
}
