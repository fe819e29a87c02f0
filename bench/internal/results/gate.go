package results

import (
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Gate is a condition under which a comparison fails: a limit for the change of
// a figure, such as "p99-ns/acquire > +10%", or for the figure itself, which is
// a bound: "max-ns/takeover > 20ms", "cycles/s / BASELINE < 1.8".
type Gate struct {
	text     string
	unit     string // may hold "*"
	baseline string // the baseline whose figure in the same cell divides the bound's figure; "" for none
	above    bool   // fails when the value is above the limit, else below
	bound    bool
	limit    float64 // a change as a fraction, a time in nanoseconds
	shown    string  // the limit as it was written
}

var gateForm = regexp.MustCompile(`^\s*(\S+?)(?:\s+/\s+(\S+))?\s*([<>])\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*(%|[a-zµ]*)\s*$`)

// peak stands for a baseline that is no library: the same subject with the number of
// callers that gave its highest median.
const peak = "peak"

var callersOf = regexp.MustCompile(`/clients=\d+`)

// peakOf is the cell of the highest median among those that differ from the row's in
// the number of callers alone.
func peakOf(r Row, runs map[Row][]float64) string {
	most := r
	for other, values := range runs {
		same := other.Unit == r.Unit && callersOf.ReplaceAllString(other.Cell, "") == callersOf.ReplaceAllString(r.Cell, "")
		if same && Median(values).Center > Median(runs[most]).Center {
			most = other
		}
	}
	return most.Cell
}

// ParseGate reads a gate: a unit, in which "*" stands for any text without a slash,
// then > or <, then the change of the median in percent. Without a percent sign the
// limit is for the figure itself, with a unit for a time. A baseline after " / ", or
// the word peak, makes it a limit for their ratio.
func ParseGate(text string) (Gate, error) {
	m := gateForm.FindStringSubmatch(text)
	if m == nil {
		return Gate{}, fmt.Errorf("%q is not UNIT > +PERCENT%%, UNIT > LIMIT or UNIT / BASELINE < LIMIT", text)
	}
	if _, err := path.Match(m[1], ""); err != nil {
		return Gate{}, fmt.Errorf("%q: %q is not a pattern", text, m[1])
	}
	g := Gate{text: strings.TrimSpace(text), unit: m[1], baseline: m[2], above: m[3] == ">", bound: m[5] != "%", shown: m[4] + m[5]}
	var err error
	switch timed := g.baseline == "" && strings.Contains(g.unit, "-ns/"); {
	case !g.bound && g.baseline != "":
		err = errors.New("a ratio has no percent sign: 1.8 is 80 % more")
	case g.bound && !timed && m[5] != "":
		err = fmt.Errorf("%s is no time", g.unit)
	case g.bound && timed:
		var d time.Duration
		d, err = time.ParseDuration(m[4] + m[5])
		g.limit = float64(d)
	default:
		g.limit, err = strconv.ParseFloat(m[4], 64)
	}
	if err != nil {
		return Gate{}, fmt.Errorf("%q: %w", text, err)
	}
	if !g.bound {
		g.limit /= 100
	}
	return g, nil
}

// divided separates the gates for changes from the gates for figures.
func divided(gates []Gate) (changes, bounds []Gate) {
	for _, g := range gates {
		if g.bound {
			bounds = append(bounds, g)
			continue
		}
		changes = append(changes, g)
	}
	return changes, bounds
}

// String returns the gate as it was written.
func (g Gate) String() string { return g.text }

// concerns reports whether the gate is about the unit.
func (g Gate) concerns(unit string) bool {
	ok, _ := path.Match(g.unit, unit) // ParseGate has tried the pattern
	return ok
}

func (g Gate) fails(d Difference) bool {
	return d.Supported && !math.IsNaN(d.Delta) && g.beyond(d.Delta)
}

func (g Gate) beyond(v float64) bool { return g.above && v > g.limit || !g.above && v < g.limit }

// Verdict is the result of checking a comparison against gates.
type Verdict struct {
	// Failed are the rows that a gate stops, with the gate.
	Failed []Failure
	// Blind says why no gate could stop anything. It is "" when one could.
	Blind string
	// Sensitivities say which changes each gate could have stopped.
	Sensitivities []Sensitivity
}

// Failure is a row that a gate stops.
type Failure struct {
	Gate Gate
	Row  Difference
}

// Judge checks the rows of plugins against the gates for changes. It corrects them for
// the number of rows that the gates concern, so few gates see more than many. Units
// without any row are returned as unknown.
func (c Comparison) Judge(gates []Gate) (v Verdict, unknown []string) {
	gates, _ = divided(gates)
	var rows []Difference
	for _, d := range c.judged() {
		if slices.ContainsFunc(gates, func(g Gate) bool { return g.concerns(d.Unit) }) {
			rows = append(rows, d)
		}
	}
	correct(rows)
	if w := tooFew(rows); w != nil {
		v.Blind = w[0]
	}
	for _, g := range gates {
		met := false
		for _, d := range rows {
			if !g.concerns(d.Unit) {
				continue
			}
			met = true
			if g.fails(d) {
				v.Failed = append(v.Failed, Failure{g, d})
			}
		}
		if !met {
			unknown = append(unknown, g.unit)
			continue
		}
		v.Sensitivities = append(v.Sensitivities, g.sensitivity(rows))
	}
	return v, unknown
}

// judged are the rows that a gate can stop.
func (c Comparison) judged() []Difference {
	rows := slices.DeleteFunc(slices.Clone(c.Rows), func(d Difference) bool { return d.Control })
	return append(rows, c.others...)
}

// Units lists the units that a gate can name.
func (c Comparison) Units() []string {
	var out []string
	for _, d := range c.judged() {
		if !slices.Contains(out, d.Unit) {
			out = append(out, d.Unit)
		}
	}
	return out
}
