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

// Gate is a limit for a comparison. Usually it limits the change of a figure between two builds,
// for example "p99-ns/acquire > +10%". A gate that limits the figure itself is called a bound, for
// example "max-ns/takeover > 20ms" or "cycles/s / BASELINE < 1.8".
type Gate struct {
	text     string
	unit     string // may contain "*"
	baseline string // the baseline to divide by, for a bound on a ratio; otherwise ""
	above    bool   // if true, the gate fails above the limit; otherwise, below the limit
	bound    bool
	limit    float64 // a fraction for a change, and nanoseconds for a time
	shown    string  // the limit as it was written
}

var gateForm = regexp.MustCompile(`^\s*(\S+?)(?:\s+/\s+(\S+))?\s*([<>])\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*(%|[a-zµ]*)\s*$`)

// A gate can have the word peak in place of a baseline. It then divides the figure by the same
// subject's figure at the number of callers with the highest median.
const peak = "peak"

var callersOf = regexp.MustCompile(`/clients=\d+`)

// peakOf returns the name of the cell with the highest median of the row's unit. It looks at cells
// that differ from the row's cell at most in the number of callers.
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

// ParseGate parses a gate: a unit, then > or <, then a change of the median in percent. In the
// unit, "*" stands for any text without a slash. A limit without a percent sign is for the figure
// itself, and not for its change. If the figure is a time, such a limit needs a unit such as ms. If
// a slash and a baseline (or the word peak) follow the unit, the limit is for a ratio.
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

func (g Gate) String() string { return g.text }

func (g Gate) concerns(unit string) bool {
	ok, _ := path.Match(g.unit, unit) // ParseGate has checked the pattern
	return ok
}

func concerned(gates []Gate, unit string) bool {
	return slices.ContainsFunc(gates, func(g Gate) bool { return g.concerns(unit) })
}

func (g Gate) beyond(v float64) bool { return g.above && v > g.limit || !g.above && v < g.limit }

// Verdict is the result of checking a comparison against gates.
type Verdict struct {
	// Failed has each row in which a test supports a change that is beyond the limit of a gate.
	Failed []Failure
	// Blind says why no change, however large, could have failed a gate. Otherwise Blind is "".
	Blind string
	// Sensitivities has, for each gate, the smallest change that the gate could have noticed.
	Sensitivities []Sensitivity
}

type Failure struct {
	Gate Gate
	Row  Difference
}

// Judge checks the rows of plugins against the gates that limit changes. It corrects p-values for
// the number of rows that gates limit. With fewer gates it therefore notices smaller changes. The
// result unknown has the units of gates that limit no row.
func (c Comparison) Judge(gates []Gate) (v Verdict, unknown []string) {
	gates, _ = divided(gates)
	var rows []Difference
	for _, d := range c.judged() {
		if concerned(gates, d.Unit) {
			rows = append(rows, d)
		}
	}
	correct(rows)
	v.Blind = tooFew(rows)
	for _, g := range gates {
		p := Sensitivity{Gate: g}
		for _, d := range rows {
			if !g.concerns(d.Unit) {
				continue
			}
			if d.Supported && g.beyond(d.Delta) {
				v.Failed = append(v.Failed, Failure{g, d})
			}
			if least := d.detectable(g.above, len(rows)); p.Row == (Row{}) || math.Abs(least) > math.Abs(p.Detectable) {
				p.Row, p.Detectable = d.Row, least
			}
		}
		if p.Row == (Row{}) {
			unknown = append(unknown, g.unit)
			continue
		}
		v.Sensitivities = append(v.Sensitivities, p)
	}
	return v, unknown
}

// judged returns the rows that a gate for changes can limit.
func (c Comparison) judged() []Difference {
	rows := slices.DeleteFunc(slices.Clone(c.Rows), func(d Difference) bool { return d.Control })
	return append(rows, c.others...)
}

// Units lists the units that a gate for changes can name.
func (c Comparison) Units() []string {
	var out []string
	for _, d := range c.judged() {
		if !slices.Contains(out, d.Unit) {
			out = append(out, d.Unit)
		}
	}
	return out
}

// Sensitivity is the smallest change of a figure that a gate (a limit for changes) could have
// noticed in the compared runs.
type Sensitivity struct {
	Gate Gate
	// Row is the row in which a change must be largest before the gate notices it. Detectable is the
	// smallest change of the median of this row, as a fraction, that a test could have shown. It is
	// infinite if a test could not have shown any change.
	Row        Row
	Detectable float64
}

// Suffices reports whether, in each row that the gate limits, the gate could have noticed a change
// just beyond its limit.
func (p Sensitivity) Suffices() bool {
	if math.IsInf(p.Detectable, 0) {
		return false
	}
	return p.Gate.limit == 0 || p.Gate.above != (p.Gate.limit > 0) || math.Abs(p.Detectable) <= math.Abs(p.Gate.limit)
}
