package stat

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Gate is a condition under which a comparison fails, such as
// "p99-ns/acquire > +10%".
type Gate struct {
	text  string
	unit  string // may hold "*"
	above bool   // fails when the change is above the limit, else below
	limit float64
}

var gateForm = regexp.MustCompile(`^\s*(\S+?)\s*([<>])\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*%\s*$`)

// ParseGate reads a gate: a unit, in which "*" stands for any text without a
// slash, then > or <, then the change of the median in percent.
func ParseGate(text string) (Gate, error) {
	m := gateForm.FindStringSubmatch(text)
	if m == nil {
		return Gate{}, fmt.Errorf("%q is not UNIT > +PERCENT%% or UNIT < -PERCENT%%", text)
	}
	if _, err := path.Match(m[1], ""); err != nil {
		return Gate{}, fmt.Errorf("%q: %q is not a pattern", text, m[1])
	}
	limit, err := strconv.ParseFloat(m[3], 64)
	if err != nil {
		return Gate{}, fmt.Errorf("%q: %w", text, err)
	}
	return Gate{text: strings.TrimSpace(text), unit: m[1], above: m[2] == ">", limit: limit / 100}, nil
}

// String is the gate as it was written.
func (g Gate) String() string { return g.text }

// concerns reports whether the gate is about the unit.
func (g Gate) concerns(unit string) bool {
	ok, _ := path.Match(g.unit, unit) // ParseGate has tried the pattern
	return ok
}

func (g Gate) fails(d Difference) bool {
	if !d.Supported || math.IsNaN(d.Delta) {
		return false
	}
	return g.above && d.Delta > g.limit || !g.above && d.Delta < g.limit
}

// Verdict is what the gates say of a comparison.
type Verdict struct {
	// Failed are the rows that a gate stops, with the gate.
	Failed []Failure
	// Rows is how many rows the gates were about.
	Rows int
	// Blind says why no gate could ever stop; "" when one could.
	Blind string
	// Sensitivities say what each gate could have stopped.
	Sensitivities []Sensitivity
}

// Failure is a row that a gate stops.
type Failure struct {
	Gate Gate
	Row  Difference
}

// Judge holds the rows of plugins against the gates. They are corrected for
// the number of rows that the gates are about, which is why few gates see more
// than many. Units without any row are returned as unknown.
func (c Comparison) Judge(gates []Gate) (v Verdict, unknown []string) {
	var rows []Difference
	for _, d := range c.judged() {
		if slices.ContainsFunc(gates, func(g Gate) bool { return g.concerns(d.Unit) }) {
			rows = append(rows, d)
		}
	}
	correct(rows)
	v.Rows = len(rows)
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
