package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// drawing shows the speed of backends against their promises, which are fencing and durability. It
// has a row, called a lane, for each promise, with the strongest promise on top. A lane has a mark
// for each backend or baseline with that promise. Faster ones are further right.
type drawing struct {
	Title string
	Lanes []promise
	Ticks []tick
}

// promise is one lane (row) of the drawing, for subjects with the same fencing and durability.
type promise struct {
	Tokens, Durability string
	Marks              []mark
}

// mark is one backend or baseline: a point and an interval. Positions are in percent of the width.
type mark struct {
	Label          string
	At, From, Wide float64 // the median, where its interval begins, and the interval's width
	Pale           bool    // the subject is not a candidate
	Broken         bool
}

func (m mark) Left() bool { return m.At > 50 }

// tick is a labelled line across the lanes.
type tick struct {
	At   float64
	Text string
}

// tokenClasses lists the classes of fencing and their promises, with the strongest class first.
var tokenClasses = []struct{ class, means string }{
	{"strict", "tokens that rise through every crash"},
	{"durable", "tokens as durable as the data"},
	{"quorum", "tokens that a quorum keeps"},
	{"none", "no tokens"},
}

// drawing draws the first highlight (a figure that decides a choice) with values of a backend and
// of at least one other subject, for example a baseline.
func (r Report) drawing() drawing {
	for _, h := range r.highlights() {
		rows := filter(h.table.Rows, func(row Row) bool {
			return row.Kind != results.KindFloor && !(row.Figures[h.unit].Center <= 0)
		})
		if len(rows) > 1 && slices.ContainsFunc(rows, func(row Row) bool { return row.Kind == results.KindPlugin }) {
			return r.draw(h, rows)
		}
	}
	return drawing{}
}

func (r Report) draw(h highlight, rows []Row) drawing {
	s := scaleOf(h, rows)
	d := drawing{Title: "Speed against guarantees: " + h.title, Ticks: s.ticks()}
	for _, c := range tokenClasses {
		of := filter(rows, func(row Row) bool { return cmp.Or(row.Fencing, "none") == c.class })
		for _, g := range groups(of, Row.promise) {
			p := promise{Tokens: c.means, Durability: g.key}
			for _, row := range g.all {
				p.Marks = append(p.Marks, r.mark(row, s))
			}
			slices.SortStableFunc(p.Marks, func(a, b mark) int { return cmp.Compare(b.At, a.At) })
			d.Lanes = append(d.Lanes, p)
		}
	}
	return d
}

// promise returns the durability of a row. Rows with the same fencing and durability share a lane.
// For subjects without tokens, promise returns "", because these share one lane.
func (row Row) promise() string {
	if cmp.Or(row.Fencing, "none") == "none" {
		return ""
	}
	return row.shortDurability()
}

func (r Report) mark(row Row, s scale) mark {
	e := row.Figures[s.unit]
	m := mark{Label: row.Name, At: s.place(e.Center), Pale: !mayTake(row.Subject), Broken: r.broken(row.Name)}
	if m.Broken {
		m.Label = "✗ " + m.Label
	}
	if !m.Pale {
		m.Label += " " + bare(s.unit, e.Center)
	}
	if e.Bounded() {
		lo, hi := s.place(e.Lo), s.place(e.Hi)
		m.From, m.Wide = min(lo, hi), math.Abs(hi-lo)
	}
	return m
}

func (row Row) shortDurability() string {
	short, _, _ := strings.Cut(cmp.Or(row.Durability, "durability unknown"), ",")
	return short
}

// scale places figures on a logarithmic scale, with better figures further to the right.
type scale struct {
	lo, hi float64 // decimal logarithms
	highlight
}

// scaleOf returns a scale that has room for all figures and their intervals. The scale spans at
// least half a power of ten (a factor of 3), because a shorter scale would exaggerate differences.
func scaleOf(h highlight, rows []Row) scale {
	s := scale{math.Inf(1), math.Inf(-1), h}
	for _, row := range rows {
		e := row.Figures[h.unit]
		if !e.Bounded() || e.Lo <= 0 {
			e.Lo, e.Hi = e.Center, e.Center
		}
		s.lo, s.hi = min(s.lo, math.Log10(e.Lo)), max(s.hi, math.Log10(e.Hi))
	}
	if missing := 0.5 - (s.hi - s.lo); missing > 0 {
		s.lo, s.hi = s.lo-missing/2, s.hi+missing/2
	}
	return s
}

// margin is the empty space on each side of the lanes, in percent of the width.
const margin = 3.0

func (s scale) place(v float64) float64 {
	share := (math.Log10(max(v, math.SmallestNonzeroFloat64)) - s.lo) / (s.hi - s.lo)
	if !s.more {
		share = 1 - share
	}
	return margin + (100-2*margin)*min(1, max(0, share))
}

// ticks returns ticks at powers of ten.
func (s scale) ticks() []tick {
	steps := []float64{1}
	if s.hi-s.lo < 2 {
		steps = []float64{1, 3}
	}
	if s.hi-s.lo < 1 {
		steps = []float64{1, 2, 5}
	}
	var out []tick
	for d := math.Floor(s.lo); d <= s.hi; d++ {
		for _, step := range steps {
			v := step * math.Pow(10, d)
			if l := math.Log10(v); l < s.lo || l > s.hi {
				continue
			}
			out = append(out, tick{s.place(v), round(s.unit, v)})
		}
	}
	return out
}

func round(unit string, v float64) string {
	if strings.Contains(unit, "-ns/") {
		return time.Duration(math.Round(v)).String()
	}
	return grouped(v)
}

// answer writes the drawing and the choices as text. The drawing shows no confidence intervals, so
// the choices say which differences may be due to chance.
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
		text = strings.Join(filter([]string{text, c.Others, c.Libraries}, said), "; ")
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
	p.note("● candidate, ○ baseline, or locks that other hosts do not see. Further right is faster, further up guarantees more.")
}

func (p *printer) drawn(c canvas) {
	p.WriteString(strings.TrimRight("  "+string(c), " ") + "\n")
}

// canvas is one line of a picture that is drawn with characters.
type canvas []rune

func newCanvas() canvas { return canvas(strings.Repeat(" ", textWidth-2)) }

func (c canvas) column(percent float64) int {
	return int(math.Round(percent / 100 * float64(len(c)-1)))
}

// put writes text that begins at the given column. If the text would go beyond the right end of the
// line, put moves the text to the left.
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
