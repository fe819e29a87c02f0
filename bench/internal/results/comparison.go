package results

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchproc"
)

// Row names one figure (unit) of one cell, which is a subject under one load.
type Row struct {
	Cell string // the cell's name in results.txt: "Acquire/backend=NAME/clients=64"
	Unit string // the unit in results.txt: "p50-ns/acquire"
}

var ErrFilter = errors.New("not a filter")

// Comparison compares two builds. It uses only the figures that both builds have.
type Comparison struct {
	// Old and New name the folders or builds that are compared.
	Old, New string
	// Rows has a difference for each tested figure. The figures of plugins come first, and then those
	// of baselines and floors. Both groups are sorted by the name of the cell.
	Rows []Difference
	// Warnings are reasons to doubt the whole comparison.
	Warnings []string
	// Held has a result for each bound, which is a limit for a figure of the newer folder. Old, Rows
	// and Warnings are empty if there is only one folder and each gate (limit) is a bound.
	Held []Held

	others  []Difference // differences of plugins that are not tested unless a gate names their units
	lacking []Difference // rows of plugins that are not compared, because some run lacks them
}

// measured is one figure (unit) of one cell (a subject under one load) in one run.
type measured struct {
	Row
	subject Subject
	value   float64
	order   benchproc.Key // the key by which rows are sorted
}

func runsOf(figures []measured) map[Row][]float64 {
	out := map[Row][]float64{}
	for _, f := range figures {
		out[f.Row] = append(out[f.Row], f.value)
	}
	return out
}

// Load compares two folders, or the two builds in one folder. A gate limits a change, unless it is
// a bound, which limits a figure of the newer folder. Load checks the bounds, and
// [Comparison.Judge] checks the other gates. If all gates are bounds, one build is enough.
func Load(dirs []string, filter string, gates []Gate) (c Comparison, err error) {
	changes, bounds := divided(gates)
	switch {
	case len(dirs) == 2:
		c, err = Folders(dirs[0], dirs[1], filter)
	case len(bounds) > 0 && len(changes) == 0:
		c.New = dirs[0]
	default:
		c, err = Builds(dirs[0], filter)
	}
	if err == nil {
		err = c.whole(changes)
	}
	if err == nil && c.Old != "" && len(c.Rows) == 0 {
		err = fmt.Errorf("%w: there is no figure that both have", ErrIncomplete)
	}
	if err == nil && len(bounds) > 0 {
		err = c.hold(dirs[len(dirs)-1], filter, bounds)
	}
	return c, err
}

// Folders compares two runs with the same plan. It refuses to compare a merged folder with the
// folder of one part (one of the merged runs), because their loads differ. The filter selects
// figures, as in benchstat: "/backend:NAME /clients:64". The filter "" selects all figures.
func Folders(before, after, filter string) (Comparison, error) {
	a, errBefore := ReadWhole(before)
	b, errAfter := ReadWhole(after)
	if err := cmp.Or(errBefore, errAfter); err != nil {
		return Comparison{}, err
	}
	d := a.Plan.Differs(b.Plan)
	if (a.Together == nil) != (b.Together == nil) {
		d = append(d, "one folder has all the parts, the other has one of them")
	}
	if len(d) > 0 {
		return Comparison{}, fmt.Errorf("%w: %s and %s: %s", ErrPlans, before, after, strings.Join(d, "; "))
	}
	left, _, errBefore := read(before, a, filter)
	right, units, errAfter := read(after, b, filter)
	if err := cmp.Or(errBefore, errAfter); err != nil {
		return Comparison{}, err
	}
	c := compare(left, right, a.Plan.Runs, b.Plan.Runs, units)
	c.Old, c.New = before, after
	if a.Machine != b.Machine {
		c.Warnings = append(c.Warnings, "the two runs were not on the same machine")
	}
	for _, d := range a.Plan.Elsewhere(b.Plan) {
		c.Warnings = append(c.Warnings, "the servers of the two runs were not in the same place: "+d)
	}
	if a.Plan.MTLS != b.Plan.MTLS {
		c.Warnings = append(c.Warnings, "one run had mutual TLS, the other had not")
	}
	return c, nil
}

// Builds compares two builds of a backend that one run measured in turn. The old build is the one
// from the --vs flag. The new build is lockbench's own.
func Builds(dir, filter string) (Comparison, error) {
	m, err := ReadWhole(dir)
	if err != nil {
		return Comparison{}, err
	}
	if !slices.ContainsFunc(m.Subjects, func(s Subject) bool { return s.BuildOf != "" }) {
		return Comparison{}, fmt.Errorf("%w: %s has one build only", ErrPlans, dir)
	}
	figures, units, err := read(dir, m, filter)
	if err != nil {
		return Comparison{}, err
	}
	var before, after []measured
	for _, f := range figures {
		if of := f.subject.BuildOf; of != "" {
			f.Cell = strings.Replace(f.Cell, "/backend="+f.subject.Name+"/", "/backend="+of+"/", 1)
			before = append(before, f)
			continue
		}
		after = append(after, f)
	}
	c := compare(before, after, m.Plan.Runs, m.Plan.Runs, units)
	c.Old, c.New = "the other build", "this build"
	return c, nil
}

// cellOrder is the sort order of rows. Its field with index backendField is the backend.
const (
	cellOrder    = ".name@alpha,/backend@alpha,/mode@alpha,/hosts@num,/keys@num,/hold@alpha,/rtt@alpha,/clients@num"
	backendField = 1
)

// read returns the figures of a folder that pass the filter.
func read(dir string, m Manifest, filter string) ([]measured, benchfmt.UnitMetadataMap, error) {
	if filter == "" {
		filter = "*"
	}
	keep, err := benchproc.NewFilter(filter)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrFilter, err)
	}
	cells, err := new(benchproc.ProjectionParser).Parse(cellOrder, keep)
	if err != nil {
		return nil, nil, err
	}
	var out []measured
	runs := map[string]int{}
	units, err := ScanResults(dir, func(res *benchfmt.Result) {
		key := cells.Project(res)
		subject, cell := m.Subject(key.Get(cells.Fields()[backendField])), res.Name.String()
		if subject.Kind == KindPlugin {
			runs[cell]++
		}
		if ok, _ := keep.Apply(res); !ok { // the error says only why the filter left out the line
			return
		}
		for unit, v := range Values(res) {
			out = append(out, measured{Row{cell, unit}, subject, v, key})
		}
	})
	if err == nil && len(runs) == 0 && len(m.Plan.Backends) > 0 {
		err = fmt.Errorf("%w: %s has no figure of a plugin", ErrIncomplete, dir)
	}
	for _, cell := range slices.Sorted(maps.Keys(runs)) {
		if n := runs[cell]; err == nil && n < m.Plan.Runs {
			err = fmt.Errorf("%w: %s has %d of %d runs of %s", ErrIncomplete, dir, n, m.Plan.Runs, cell)
		}
	}
	return out, units, err
}

// compare compares the rows that are in both slices. A row of a plugin must have a figure in each
// planned run. Slow runs may have too few samples for a p99, and a median without slow runs would
// be too good. The p-values of plugin rows are corrected for the number of plugin rows, and all
// other p-values for the number of other rows.
func compare(before, after []measured, runsBefore, runsAfter int, units benchfmt.UnitMetadataMap) Comparison {
	var c Comparison
	var controls []Difference
	seen := map[Row]bool{}
	sort.SliceStable(before, func(i, j int) bool { return before[i].order.Less(before[j].order) })
	old, now := runsOf(before), runsOf(after)
	for _, f := range slices.Concat(before, after) {
		r, control := f.Row, f.subject.Kind != KindPlugin
		if seen[r] {
			continue
		}
		seen[r] = true
		lacks := !control && (len(old[r]) < runsBefore || len(now[r]) < runsAfter)
		if lacks {
			c.lacking = append(c.lacking, Difference{Row: r, Old: Median(old[r]), New: Median(now[r])})
		}
		if lacks || len(old[r]) == 0 || len(now[r]) == 0 {
			continue
		}
		d := NewDifference(r, old[r], now[r])
		d.Better, d.Control = units.GetBetter(r.Unit), control
		switch {
		case !Tested(r.Unit) && !d.Control:
			c.others = append(c.others, d)
		case !Tested(r.Unit):
		case d.Control:
			controls = append(controls, d)
		default:
			c.Rows = append(c.Rows, d)
		}
	}
	correct(c.Rows)
	correct(controls)
	for _, d := range controls {
		if d.Worse() || d.Improved() {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s of %s, which is the same in both, differs by %+.0f %%: the machine has changed, not only the build", d.Unit, d.Cell, 100*d.Delta))
		}
	}
	if few := tooFew(c.Rows); few != "" {
		c.Warnings = append(c.Warnings, few)
	}
	if i := slices.IndexFunc(c.lacking, func(d Difference) bool { return Tested(d.Unit) }); i >= 0 {
		c.Warnings = append(c.Warnings, "some figures are not compared, because not every run has them: the first is "+c.lacking[i].Unit+" of "+c.lacking[i].Cell)
	}
	c.Rows = append(c.Rows, controls...)
	return c
}

// whole returns an error if a gate limits the change of a row that some run lacks.
func (c Comparison) whole(gates []Gate) error {
	for _, d := range c.lacking {
		if concerned(gates, d.Unit) {
			return fmt.Errorf("%w: %s of %s is in %d runs of %s and in %d of %s", ErrIncomplete, d.Unit, d.Cell, d.Old.N, c.Old, d.New.N, c.New)
		}
	}
	return nil
}

// tooFew returns a warning if each row has too few runs for any test to show a difference.
func tooFew(rows []Difference) string {
	if len(rows) == 0 || slices.ContainsFunc(rows, func(d Difference) bool { return d.canBeSupported(len(rows)) }) {
		return ""
	}
	return fmt.Sprintf("%d and %d runs cannot support a difference among %d rows: at least %d of each are needed, or fewer rows by a filter",
		rows[0].Old.N, rows[0].New.N, len(rows), RunsNeeded(len(rows)))
}

// Held says whether the figures of a folder are within a bound, which is a limit for a figure.
type Held struct {
	Gate Gate
	// Row is the worst row of a plugin: the row farthest beyond the limit or, if no row is beyond it,
	// the row nearest to it. Rows is the number of rows with the limited figure.
	Row  Row
	Rows int
	// Measured is the median, over the runs, of the figure or of its ratio to the baseline's figure.
	// Value is what is compared with the limit: this median, or the value of the worst run.
	Measured Estimate
	Value    float64
	Broken   bool
}

// Figure returns the limited figure as text, for example "cycles/s" or "cycles/s / BASELINE".
func (h Held) Figure() string {
	return strings.TrimSuffix(h.Row.Unit+" / "+h.Gate.baseline, " / ")
}

func (h Held) IsRatio() bool { return h.Gate.baseline != "" }

// Limit returns the required value as text, for example ">= 1.8" or "<= 20ms".
func (h Held) Limit() string {
	if h.Gate.above {
		return "<= " + h.Gate.shown
	}
	return ">= " + h.Gate.shown
}

var ErrNoFigure = errors.New("no plugin has the figure")

func (c *Comparison) hold(dir, filter string, bounds []Gate) error {
	m, err := ReadWhole(dir)
	if err != nil {
		return err
	}
	kept, _, errKept := read(dir, m, filter)
	whole, _, errWhole := read(dir, m, "") // the filter may have left out the baselines
	if err := cmp.Or(errKept, errWhole); err != nil {
		return err
	}
	runs := runsOf(whole)
	for _, g := range bounds {
		h, err := g.hold(m, kept, runs)
		if err != nil {
			return fmt.Errorf("%w of %s", err, dir)
		}
		if h.Rows == 0 {
			return fmt.Errorf("%w %q in %s", ErrNoFigure, strings.TrimSuffix(g.unit+" / "+g.baseline, " / "), dir)
		}
		c.Held = append(c.Held, h)
	}
	return nil
}

// hold checks the bound g, and returns the result for the worst row (see [Held]). It returns an
// error if some run lacks the figure, or lacks the baseline's figure. If every run has both
// figures, values with the same index are from the same run.
func (g Gate) hold(m Manifest, figures []measured, runs map[Row][]float64) (worst Held, err error) {
	worst.Gate = g
	for _, f := range g.limited(figures) {
		h := Held{Gate: g, Row: f.Row, Measured: Median(runs[f.Row])}
		of := f.Row
		if g.baseline != "" {
			of.Cell = strings.Replace(f.Cell, "/backend="+f.subject.Name+"/", "/backend="+g.baseline+"/", 1)
			if g.baseline == peak {
				of.Cell = peakOf(f.Row, runs)
			}
			h.Measured = Compare(runs[f.Row], runs[of]).Estimate
		}
		if len(runs[f.Row])+len(runs[of]) == 0 || !m.tried(g.baseline, of.Cell, runs) {
			continue
		}
		if h.Measured.N < max(1, m.Plan.Runs) {
			return h, fmt.Errorf("%w: %s of %s is in %d of %d runs", ErrIncomplete, h.Figure(), f.Cell, h.Measured.N, m.Plan.Runs)
		}
		h.Value = g.valueOf(f.Unit, h.Measured)
		h.Broken, h.Rows = g.beyond(h.Value), worst.Rows+1
		if order := cmp.Compare(h.Value, worst.Value); worst.Rows == 0 || g.above && order > 0 || !g.above && order < 0 {
			worst = h
		}
		worst.Rows = h.Rows
	}
	return worst, nil
}

// limited returns the rows that g limits: each cell of a plugin with each limited unit that any
// plugin has. A row may have no figures, because a slow backend had too few samples for the unit.
func (g Gate) limited(figures []measured) (out []measured) {
	cells, units := map[string]measured{}, map[string]bool{}
	for _, f := range figures {
		if f.subject.Kind == KindPlugin && f.subject.BuildOf == "" {
			cells[f.Cell], units[f.Unit] = f, g.concerns(f.Unit)
		}
	}
	for _, cell := range slices.Sorted(maps.Keys(cells)) {
		for _, unit := range slices.Sorted(maps.Keys(units)) {
			if f := cells[cell]; units[unit] {
				f.Unit = unit
				out = append(out, f)
			}
		}
	}
	return out
}

// tried reports whether the run tried to measure the cell. A plan may omit the baseline. If the
// baseline has failed, tried returns true, because the cell may lack figures for this reason.
func (m Manifest) tried(baseline, cell string, runs map[Row][]float64) bool {
	for r := range runs {
		if r.Cell == cell {
			return true
		}
	}
	return slices.ContainsFunc(m.Failed, func(c FailedCell) bool { return c.Backend == baseline })
}

// valueOf returns the value to compare with the limit. For a maximum, and for a count of events
// that must not happen, this is the value of the worst run. For any other figure, it is the median.
func (g Gate) valueOf(unit string, e Estimate) float64 {
	if g.baseline == "" && g.above && (strings.HasPrefix(unit, "max-") || g.limit == 0) {
		return e.Max
	}
	return e.Center
}

// Difference compares one figure of a cell (a subject under one load) between old and new runs.
type Difference struct {
	Row
	Old, New Estimate
	// Delta is the change of the median as a fraction of the old median, for example 0.2 for 20 %
	// more. It is infinite if the old median is 0.
	Delta float64
	// Test is the test of old against new runs, corrected for the number of rows in the comparison.
	Test
	// Better is 1 if a higher value is better, -1 if a lower value is better, and otherwise 0.
	Better int
	// Control reports whether the row is about a baseline or a floor, which is the same in both
	// builds. P-values of control rows are corrected only for the number of control rows.
	Control bool

	before, after []float64 // values of the runs
}

// NewDifference tests whether the values in before differ from the values in after. Each slice must
// have at least one value.
func NewDifference(row Row, before, after []float64) Difference {
	d := Difference{Row: row, Old: Median(before), New: Median(after), Test: test(before, after), before: before, after: after}
	d.Delta = (d.New.Center - d.Old.Center) / math.Abs(d.Old.Center)
	if d.New.Center == d.Old.Center {
		d.Delta = 0
	}
	return d
}

// Matters is a fraction of the old median. Only a larger change of the median counts as worse or
// better, and a smaller change does not, even if a test supports it.
const Matters = 0.05

// Worse reports whether the figure got worse by more than [Matters], and a test supports this.
func (d Difference) Worse() bool {
	return d.Supported && math.Abs(d.Delta) > Matters && d.Delta*float64(d.Better) < 0
}

func (d Difference) Improved() bool {
	return d.Supported && math.Abs(d.Delta) > Matters && d.Delta*float64(d.Better) > 0
}

// canBeSupported reports whether there are enough runs for the U test to show a difference when the
// given number of rows is tested together.
func (d Difference) canBeSupported(rows int) bool {
	return leastP(d.Old.N, d.New.N)*float64(rows) < Alpha
}

func correct(rows []Difference) {
	var tests []*Test
	for i := range rows {
		tests = append(tests, &rows[i].Test)
	}
	Holm(tests)
}

// RunsNeeded returns how many runs of each build the U test needs to show a difference when the
// given number of rows is tested together.
func RunsNeeded(rows int) int {
	n := 2
	for leastP(n, n)*float64(max(rows, 1)) >= Alpha {
		n++
	}
	return n
}

// leastP returns the lowest p-value of the U test for samples of a and b runs. It is 2 divided by
// the number of ways to choose a of a+b runs. The 2 is for the two sides of the test.
func leastP(a, b int) float64 {
	ways := 1.0
	for i := 1; i <= a; i++ {
		ways = ways * float64(b+i) / float64(i)
	}
	return 2 / ways
}

// maxChange is the largest factor between old and new median that method detectable tries.
const maxChange = 16

// detectable returns the smallest change of the median (as a fraction) that a test of these runs
// could have shown, if the given number of rows is tested together. It scales the new values to the
// old median, and then further, until the test shows a difference. If above is true, the result is
// a rise. Otherwise it is a fall, which is negative. The result is infinite if the test could not
// show even a factor of maxChange.
func (d Difference) detectable(above bool, rows int) float64 {
	sign := 1.0
	if !above {
		sign = -1
	}
	if d.Old.Center <= 0 || d.New.Center <= 0 || !d.canBeSupported(rows) {
		return math.Inf(int(sign))
	}
	shows := func(factor float64) bool {
		moved := make([]float64, len(d.after))
		for i, v := range d.after {
			moved[i] = v / d.New.Center * d.Old.Center * factor
		}
		return test(d.before, moved).P*float64(rows) < Alpha
	}
	// The p-value falls as the two samples move apart, so bisection finds the smallest change.
	none, some := 1.0, math.Pow(maxChange, sign)
	if !shows(some) {
		return math.Inf(int(sign))
	}
	for range 40 {
		if middle := math.Sqrt(none * some); shows(middle) {
			some = middle
		} else {
			none = middle
		}
	}
	return some - 1
}
