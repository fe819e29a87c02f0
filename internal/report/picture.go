package report

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/stat"
)

// picture is speed against what is promised: a lane for each promise, the
// strongest on top, and in it a mark for each that gives it, the fastest on the
// right.
type picture struct {
	Title, Answer string
	Lanes         []promise
	Ticks         []tick
	Table         grid // that says the same
}

// promise is one lane of the picture.
type promise struct {
	Tokens, Durability string
	Rows               []marks // so many that no label lies on another
}

// marks stand in one line of a lane.
type marks []mark

// Faint reports whether no candidate is among them.
func (ms marks) Faint() bool {
	return !slices.ContainsFunc(ms, func(m mark) bool { return !m.Pale })
}

// mark is one subject. Places are in percent of a lane's width.
type mark struct {
	Name, Value    string
	At, From, Wide float64 // the median; where its interval begins, and its width
	Pale, Broken   bool
	Left           bool // its label stands on the left of it
	covers         room
}

// tick is a line across the lanes.
type tick struct {
	At   float64
	Text string
}

// tokenClasses are the fencing classes, the strongest first, and what they
// promise.
var tokenClasses = []struct{ class, means string }{
	{"strict", "tokens that rise through every crash"},
	{"durable", "tokens as durable as the data"},
	{"quorum", "tokens that a quorum keeps"},
	{"none", "no tokens"},
}

// picture is of the first highlight that compares something with a backend;
// without lanes there is none.
func (r Report) picture() picture {
	for _, h := range r.highlights() {
		rows := filter(h.table.Rows, func(row Row) bool {
			return row.Kind != record.KindFloor && !(row.Figures[h.unit].Center <= 0)
		})
		if len(rows) > 1 && slices.ContainsFunc(rows, func(row Row) bool { return row.Kind == record.KindPlugin }) {
			return r.draw(h, rows)
		}
	}
	return picture{}
}

func (r Report) draw(h highlight, rows []Row) picture {
	p := picture{Title: "Speed against what is promised: " + h.title, Answer: r.answer(h)}
	s := scaleOf(h, rows)
	p.Ticks = s.ticks()
	p.Table = tabulate(grid{Title: p.Title}, []column[Row]{
		rowSubject,
		numberColumn(h.title, figure(h.unit, true)),
		textColumn("tokens", func(row Row) string { return cmp.Or(row.Fencing, "unknown") }),
		textColumn("grants survive by", func(row Row) string { return cmp.Or(row.Durability, "unknown") }),
		textColumn("checked", func(row Row) string { return r.judged(row.Name) }),
	}, rows)
	for _, c := range tokenClasses {
		of := filter(rows, func(row Row) bool { return cmp.Or(row.Fencing, "none") == c.class })
		for _, g := range groups(of, Row.promise) {
			var all marks
			for _, row := range g.all {
				all = append(all, r.mark(row, h, s))
			}
			p.Lanes = append(p.Lanes, promise{Tokens: c.means, Durability: g.key, Rows: packed(all)})
		}
	}
	return p
}

// promise is which lane of its tokens a row is in. What gives no token is in one
// lane, whatever its server survives.
func (row Row) promise() string {
	if cmp.Or(row.Fencing, "none") == "none" {
		return ""
	}
	return row.shortDurability()
}

func (r Report) mark(row Row, h highlight, s scale) mark {
	e := row.Figures[h.unit]
	m := mark{
		Name: row.Name, Value: bare(h.unit, e.Center), At: s.place(e.Center),
		Pale: row.Kind != record.KindPlugin || row.Scope == hostScope || row.BuildOf != "", Broken: r.broken(row.Name),
	}
	if e.Bounded() {
		lo, hi := s.place(e.Lo), s.place(e.Hi)
		m.From, m.Wide = min(lo, hi), math.Abs(hi-lo)
	}
	return m
}

// answer is what is chosen, by speed and by tokens, in one line.
func (r Report) answer(h highlight) string {
	var parts []string
	for _, c := range r.choices() {
		if c.Need == h.need || c.Need == tokensNeed {
			parts = append(parts, c.Need+": "+cmp.Or(strings.Join(c.Take, " or "), c.Others))
		}
	}
	return strings.Join(parts, "; ")
}

// What a label covers, in percent of a lane: those of candidates on a phone,
// where lanes are narrowest; pale ones have none there, so theirs on a terminal.
const (
	markWide   = 5.0
	letterWide = 2.1
	paleWide   = 1.4
)

// packed puts marks into as few rows as their labels fit into.
func packed(all marks) []marks {
	slices.SortStableFunc(all, func(a, b mark) int {
		switch {
		case a.Pale == b.Pale:
			return cmp.Compare(b.At, a.At)
		case b.Pale:
			return -1
		}
		return 1
	})
	var rows []marks
	for _, m := range all {
		right, left := m.spans()
		i := slices.IndexFunc(rows, func(row marks) bool { return row.haveRoom(right) || row.haveRoom(left) })
		if i < 0 {
			i, rows = len(rows), append(rows, nil)
		}
		m.covers = right
		if m.Left = !rows[i].haveRoom(right); m.Left {
			m.covers = left
		}
		rows[i] = append(rows[i], m)
	}
	return rows
}

// room is what a mark, its interval and its label cover, in percent of a lane.
type room struct{ from, until float64 }

// spans are that with the label on the right, and on the left.
func (m mark) spans() (right, left room) {
	letter := paleWide
	if !m.Pale {
		letter = letterWide
	}
	wide := markWide + letter*float64(utf8.RuneCountInString(m.Label()))
	right, left = room{m.At - markWide/2, m.At + wide}, room{m.At - wide, m.At + markWide/2}
	if m.Wide > 0 {
		right.from, left.until = min(right.from, m.From), max(left.until, m.From+m.Wide)
	}
	return right, left
}

// haveRoom reports whether s is within the lane and beside all marks.
func (ms marks) haveRoom(s room) bool {
	return s.from >= -markWide && s.until <= 100+markWide/2 &&
		!slices.ContainsFunc(ms, func(m mark) bool { return s.from < m.covers.until && m.covers.from < s.until })
}

// Label stands beside a mark. That of a baseline is its name alone.
func (m mark) Label() string {
	out := m.Name
	if m.Broken {
		out = "✗ " + out
	}
	if !m.Pale {
		out += " " + m.Value
	}
	return out
}

// shortDurability is the first of the words about it.
func (row Row) shortDurability() string {
	short, _, _ := strings.Cut(cmp.Or(row.Durability, "durability unknown"), ",")
	return short
}

// scale places figures logarithmically, the better ones further to the right.
type scale struct {
	lo, hi float64 // decimal logarithms
	more   bool    // is better
	unit   string
}

// scaleOf has room for all figures and their intervals. It is at least half a
// decade wide: else what hardly differs would stand far apart.
func scaleOf(h highlight, rows []Row) scale {
	s := scale{math.Inf(1), math.Inf(-1), h.more, h.unit}
	for _, row := range rows {
		for _, v := range extremes(row.Figures[h.unit]) {
			s.lo, s.hi = min(s.lo, math.Log10(v)), max(s.hi, math.Log10(v))
		}
	}
	if missing := 0.5 - (s.hi - s.lo); missing > 0 {
		s.lo, s.hi = s.lo-missing/2, s.hi+missing/2
	}
	return s
}

func extremes(e stat.Estimate) []float64 {
	if e.Bounded() && e.Lo > 0 {
		return []float64{e.Lo, e.Hi}
	}
	return []float64{e.Center}
}

// margin of the lanes on both sides, in percent.
const margin = 3.0

func (s scale) place(v float64) float64 {
	share := (math.Log10(max(v, math.SmallestNonzeroFloat64)) - s.lo) / (s.hi - s.lo)
	if !s.more {
		share = 1 - share
	}
	return margin + (100-2*margin)*min(1, max(0, share))
}

// ticks are at full decades, and where there are hardly any at parts of them.
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

// round writes a value without the digits that are zeros.
func round(unit string, v float64) string {
	text := bare(unit, v)
	digits := strings.TrimRight(text, "nµms")
	if short := strings.TrimRight(digits, "0"); strings.HasSuffix(short, ".") {
		return strings.TrimSuffix(short, ".") + text[len(digits):]
	}
	return text
}
