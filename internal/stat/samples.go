package stat

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchproc"

	"github.com/lockbench/lockbench/internal/record"
)

// Row names one figure of one cell.
type Row struct {
	Cell string // its name in results.txt: "Acquire/backend=NAME/clients=64"
	Unit string // as written there: "p50-ns/acquire"
}

// ErrFilter: a filter cannot be read.
var ErrFilter = errors.New("not a filter")

// Comparison is what two builds have in common.
type Comparison struct {
	// Old and New say what is compared.
	Old, New string
	// Rows are in the order of the old folder, plugins first.
	Rows []Difference
	// Warnings are about all rows.
	Warnings []string

	others []Difference // of plugins, in units that are compared only when a gate asks
}

// side is what was measured of one build.
type side struct {
	order  []Row
	values map[Row][]float64
	kinds  map[string]record.Kind   // of the subject, by cell
	cells  map[string]benchproc.Key // by cell, to order them
}

func newSide() *side {
	return &side{values: map[Row][]float64{}, kinds: map[string]record.Kind{}, cells: map[string]benchproc.Key{}}
}

func (s *side) add(r Row, v float64) {
	if _, ok := s.values[r]; !ok {
		s.order = append(s.order, r)
	}
	s.values[r] = append(s.values[r], v)
}

// Folders compares the folders of two runs of one plan. The filter is one of
// benchstat ("/backend:NAME /clients:64"); "" keeps all.
func Folders(before, after, filter string) (Comparison, error) {
	a, err := record.ReadWhole(before)
	if err != nil {
		return Comparison{}, err
	}
	b, err := record.ReadWhole(after)
	if err != nil {
		return Comparison{}, err
	}
	if d := a.Plan.Differs(b.Plan); len(d) > 0 {
		return Comparison{}, fmt.Errorf("%w: %s and %s: %s", record.ErrPlans, before, after, strings.Join(d, "; "))
	}
	left, right := newSide(), newSide()
	_, err = read(before, a, filter, func(backend string) (*side, string) { return left, backend })
	if err != nil {
		return Comparison{}, err
	}
	units, err := read(after, b, filter, func(backend string) (*side, string) { return right, backend })
	if err != nil {
		return Comparison{}, err
	}
	c := compare(left, right, units)
	c.Old, c.New = before, after
	if a.Machine != b.Machine {
		c.Warnings = append(c.Warnings, "the two runs were not on the same machine")
	}
	if a.Plan.MTLS != b.Plan.MTLS {
		c.Warnings = append(c.Warnings, "one run had mutual TLS, the other had not")
	}
	return c, nil
}

// Builds compares the two builds that one run has interleaved: the other one,
// which is the old one, and that of lockbench itself.
func Builds(dir, filter string) (Comparison, error) {
	m, err := record.ReadWhole(dir)
	if err != nil {
		return Comparison{}, err
	}
	if !slices.ContainsFunc(m.Subjects, func(s record.Subject) bool { return s.BuildOf != "" }) {
		return Comparison{}, fmt.Errorf("%w: %s has one build only", record.ErrPlans, dir)
	}
	before, after := newSide(), newSide()
	units, err := read(dir, m, filter, func(backend string) (*side, string) {
		if of := m.Subject(backend).BuildOf; of != "" {
			return before, of
		}
		return after, backend
	})
	if err != nil {
		return Comparison{}, err
	}
	c := compare(before, after, units)
	c.Old, c.New = "the other build", "this build"
	return c, nil
}

// cellOrder is in what order rows are shown; the second field is the backend.
const (
	cellOrder    = ".name@alpha,/backend@alpha,/mode@alpha,/hosts@num,/keys@num,/hold@alpha,/clients@num"
	backendField = 1
)

// read puts the figures of a folder where sideOf says for the backend of each,
// under the name of the backend that it returns.
func read(dir string, m record.Manifest, filter string, sideOf func(backend string) (*side, string)) (benchfmt.UnitMetadataMap, error) {
	if filter == "" {
		filter = "*"
	}
	keep, err := benchproc.NewFilter(filter)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFilter, err)
	}
	cells, err := new(benchproc.ProjectionParser).Parse(cellOrder, keep)
	if err != nil {
		return nil, err
	}
	runs := map[string]int{}
	units, err := record.ScanResults(dir, func(res *benchfmt.Result) {
		key := cells.Project(res)
		backend := key.Get(cells.Fields()[backendField])
		kind := m.Subject(backend).Kind
		if kind == record.KindPlugin {
			runs[res.Name.String()]++
		}
		if ok, _ := keep.Apply(res); !ok { // the error says why not
			return
		}
		s, name := sideOf(backend)
		cell := strings.Replace(res.Name.String(), "/backend="+backend+"/", "/backend="+name+"/", 1)
		s.kinds[cell], s.cells[cell] = kind, key
		for unit, v := range record.Values(res) {
			s.add(Row{cell, unit}, v)
		}
	})
	if err == nil && len(runs) == 0 && len(m.Plan.Backends) > 0 {
		err = fmt.Errorf("%w: %s has no figure of a plugin", record.ErrIncomplete, dir)
	}
	for cell, n := range runs {
		if err == nil && n < m.Plan.Runs {
			err = fmt.Errorf("%w: %s has %d of %d runs of %s", record.ErrIncomplete, dir, n, m.Plan.Runs, cell)
		}
	}
	return units, err
}

// compare relates the rows that both sides have. The rows of plugins are
// corrected together, and so are the others.
func compare(before, after *side, units benchfmt.UnitMetadataMap) Comparison {
	var c Comparison
	var controls []Difference
	sort.SliceStable(before.order, func(i, j int) bool {
		return before.cells[before.order[i].Cell].Less(before.cells[before.order[j].Cell])
	})
	for _, r := range before.order {
		if len(after.values[r]) == 0 {
			continue
		}
		d := NewDifference(r, before.values[r], after.values[r])
		d.Better = units.GetBetter(r.Unit)
		d.Control = before.kinds[r.Cell] != record.KindPlugin
		switch {
		case !worthTesting(r.Unit) && !d.Control:
			c.others = append(c.others, d)
		case !worthTesting(r.Unit):
		case d.Control:
			controls = append(controls, d)
		default:
			c.Rows = append(c.Rows, d)
		}
	}
	Holm(c.Rows)
	Holm(controls)
	for _, d := range controls {
		if d.Worse() || d.Improved() {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s of %s, which is the same in both, differs by %+.0f %%: the machine has changed, not only the build", d.Unit, d.Cell, 100*d.Delta))
		}
	}
	c.Warnings = append(c.Warnings, tooFew(c.Rows)...)
	c.Rows = append(c.Rows, controls...)
	return c
}

// tooFew warns when the runs cannot support anything among so many rows.
func tooFew(rows []Difference) []string {
	if len(rows) == 0 || slices.ContainsFunc(rows, func(d Difference) bool { return d.canBeSupported(len(rows)) }) {
		return nil
	}
	return []string{fmt.Sprintf("%d and %d runs cannot support a difference among %d rows: at least %d of each are needed, or fewer rows by a filter",
		rows[0].Old.N, rows[0].New.N, len(rows), RunsNeeded(len(rows)))}
}

// worthTesting chooses the figures that are compared: the middle and the tail
// of each latency, and rates. The others follow from them, or are about the
// load and not about the backend.
func worthTesting(unit string) bool {
	if op, ok := strings.CutPrefix(unit, "p50-ns/"); ok {
		return op != "lag"
	}
	if op, ok := strings.CutPrefix(unit, "p99-ns/"); ok {
		return op != "lag"
	}
	return slices.Contains([]string{"cycles/s", "calls/s", "grants/s", "commands/grant", "idle-bytes/plugin", "host-bytes/lease"}, unit)
}
