package results

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ErrPlans is the error for two folders with different plans or builds, whose figures cannot be
// compared.
var ErrPlans = errors.New("different plans")

// ErrIncomplete is the error for a folder that lacks some of the planned runs.
var ErrIncomplete = errors.New("incomplete run")

// Part is one of several runs whose folders were merged into one folder.
type Part struct {
	Started time.Time `json:"started"`
	Machine Machine   `json:"machine"`
	// Elapsed is how long this run took from its start, in seconds.
	Elapsed float64 `json:"elapsed_s,omitempty"`
	// Rates has the cycles per second of this part alone, for each cell and run. In results.txt, the
	// figures are those of all parts together.
	Rates       map[string][]float64 `json:"cycles_per_s,omitempty"`
	MachineLoad *MachineLoad         `json:"machine_load,omitempty"`
}

// ReadWhole reads run.json of a folder. If the run is not done, the error wraps [ErrIncomplete].
func ReadWhole(dir string) (Manifest, error) {
	m, err := ReadManifest(dir)
	if err == nil && m.State != StateDone {
		err = fmt.Errorf("%w: %s says that its run is %s", ErrIncomplete, dir, m.State)
	}
	return m, err
}

// Rendezvous identifies one of several runs that measured at the same time on several machines,
// with the same plan, seed and order.
type Rendezvous struct {
	ID   string `json:"id"`   // the same in all parts, and different in every rendezvous
	Part int    `json:"part"` // number of the part, from 1
}

// Merge merges the folders in dirs, whose runs measured together on several machines, into the
// folder out, which must be [Vacant]. Run 1 of the result combines run 1 of all folders, and so on.
// Merge adds rates, and computes percentiles over all latencies. The error wraps [ErrApart] if the
// runs did not measure together, or not at the same time.
func Merge(out string, dirs ...string) error {
	all, err := readMergeable(out, dirs)
	if err != nil {
		return err
	}
	lines, err := readParts(dirs)
	if err != nil {
		return err
	}
	t, err := overlap(dirs, all, lines.order)
	if err != nil {
		return err
	}
	m := merged(all)
	m.Together = &t
	m.Skipped = unite(m.Skipped, lines.unequal)
	for i := range m.Parts {
		m.Parts[i].Rates = lines.rates(i)
	}
	f, err := Create(out, m)
	if err != nil {
		return err
	}
	err = f.addParts(lines)
	for _, dir := range dirs {
		if err == nil {
			err = scanWhole(dir, f.eventLog.Write)
		}
	}
	if err != nil {
		return errors.Join(err, f.closeFiles(), os.RemoveAll(out))
	}
	return f.Close(StateDone)
}

func readMergeable(out string, dirs []string) ([]Manifest, error) {
	if err := Vacant(out); err != nil {
		return nil, err
	}
	var all []Manifest
	for _, dir := range dirs {
		m, err := ReadWhole(dir)
		if err != nil {
			return nil, err
		}
		if m.Rendezvous == nil {
			return nil, fmt.Errorf("%w: %s was measured alone", ErrApart, dir)
		}
		for i, other := range all {
			if err := mergeable(other, m); err != nil {
				return nil, fmt.Errorf("%w: %s and %s", err, dirs[i], dir)
			}
		}
		all = append(all, m)
	}
	if n := all[0].Plan.Parts; n != len(dirs) {
		return nil, fmt.Errorf("%w: these are %d of the %d parts that measured together", ErrIncomplete, len(dirs), n)
	}
	return all, nil
}

// mergeable checks two runs, but not their plans, because the runs compared them at the start.
func mergeable(a, b Manifest) error {
	switch {
	case a.Rendezvous.ID != b.Rendezvous.ID:
		return fmt.Errorf("%w: they were not parts of one run", ErrApart)
	case a.Rendezvous.Part == b.Rendezvous.Part:
		return fmt.Errorf("%w: they are the same run", ErrPlans)
	}
	for name, sum := range a.Binaries {
		if other, ok := b.Binaries[name]; ok && other != sum {
			return fmt.Errorf("%w: they are of different builds of %s", ErrPlans, name)
		}
	}
	return nil
}

func merged(all []Manifest) Manifest {
	m := all[0]
	m.Binaries = maps.Clone(m.Binaries)
	m.Rendezvous, m.Skipped, m.Failed, m.Notes, m.Findings, m.MachineLoad = nil, nil, nil, nil, nil, nil
	for i, one := range all {
		m.Elapsed = max(m.Elapsed, one.Elapsed)
		m.Skipped = unite(m.Skipped, one.Skipped)
		m.Notes = unite(m.Notes, notesOf(i+1, one, all))
		m.Findings, m.Failed = append(m.Findings, one.Findings...), append(m.Failed, one.Failed...)
		maps.Copy(m.Binaries, one.Binaries)
		m.Parts = append(m.Parts, Part{Started: one.Started, Machine: one.Machine, Elapsed: one.Elapsed, MachineLoad: one.MachineLoad})
	}
	return m
}

// notesOf returns the notes of one run. If another run lacks a note, notesOf puts "part" and the
// number of the run before this note.
func notesOf(number int, one Manifest, all []Manifest) []string {
	notes := slices.Clone(one.Notes)
	for i, note := range notes {
		lacks := func(m Manifest) bool { return !slices.Contains(m.Notes, note) }
		if slices.ContainsFunc(all, lacks) {
			notes[i] = fmt.Sprintf("part %d: %s", number, note)
		}
	}
	return notes
}

func unite(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// partLines has the figures of the parts, which are the runs to be merged.
type partLines struct {
	order      []string              // names of the cells, in order
	results    map[string][][]Result // by cell, part and run
	histograms map[HistogramKey][][]*hdrhistogram.Histogram
	unequal    []string // cells that at least one part lacks in some run
}

func readParts(dirs []string) (partLines, error) {
	l := partLines{results: map[string][][]Result{}, histograms: map[HistogramKey][][]*hdrhistogram.Histogram{}}
	for i, dir := range dirs {
		results, err := ReadResults(dir)
		if err != nil {
			return l, err
		}
		for _, r := range results {
			name := r.Name()
			if l.results[name] == nil {
				l.order = append(l.order, name)
				l.results[name] = make([][]Result, len(dirs))
			}
			l.results[name][i] = append(l.results[name][i], r)
		}
		err = openHistograms(dir, func(key HistogramKey, h *hdrhistogram.Histogram) {
			if l.histograms[key] == nil {
				l.histograms[key] = make([][]*hdrhistogram.Histogram, len(dirs))
			}
			l.histograms[key][i] = append(l.histograms[key][i], h)
		})
		if err != nil {
			return l, err
		}
	}
	l.order = slices.DeleteFunc(l.order, func(name string) bool {
		runs := l.results[name]
		if slices.ContainsFunc(runs, func(of []Result) bool { return len(of) != len(runs[0]) }) {
			l.unequal = append(l.unequal, name+": not every part has measured it in every run")
			return true
		}
		return false
	})
	if len(l.order) == 0 {
		return l, fmt.Errorf("%w: no cell was measured by every part in every run", ErrIncomplete)
	}
	return l, nil
}

func (l partLines) rates(part int) map[string][]float64 {
	out := map[string][]float64{}
	for _, name := range l.order {
		for _, r := range l.results[name][part] {
			if v, ok := r.Values[rateUnit]; ok {
				out[name] = append(out[name], v)
			}
		}
	}
	return out
}

func (f *Folder) addParts(l partLines) error {
	for _, name := range l.order {
		parts := l.results[name]
		for run := range parts[0] {
			if err := f.addRun(l, parts, run); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Folder) addRun(l partLines, parts [][]Result, run int) error {
	cycles, values := 0, []map[string]float64{}
	for _, p := range parts {
		cycles += p[run].Cycles
		values = append(values, p[run].Values)
	}
	cell := parts[0][run].CellName
	var figures []figure
	for _, key := range slices.SortedFunc(maps.Keys(l.histograms), byTag) {
		if key.CellName != cell {
			continue
		}
		h := newHistogram()
		for _, of := range l.histograms[key] {
			if run < len(of) {
				h.Merge(of[run])
			}
		}
		figures = append(figures, percentiles(key.Op, h.TotalCount(), func(q float64) float64 { return float64(h.ValueAtQuantile(100 * q)) })...)
		if err := writeInterval(f.histogramLog, key, h, f.manifest.Started, f.manifest.Started); err != nil {
			return err
		}
	}
	return writeLine(f.results, cell, cycles, append(figures, jointly(values)...))
}

const rateUnit = "cycles/s"

// The jointly function combines the figures of all parts in one run, except percentiles. It adds
// rates and counts, takes the greatest maximum, and keeps a value that is equal in all parts. It
// omits any other figure. For example, commands per grant are wrong in each part, because each part
// has counted the commands of all parts.
func jointly(parts []map[string]float64) []figure {
	var out []figure
	for unit, v := range parts[0] {
		all := make([]float64, 0, len(parts))
		for _, p := range parts {
			if v, ok := p[unit]; ok {
				all = append(all, v)
			}
		}
		equal := !slices.ContainsFunc(all, func(w float64) bool { return w != v })
		switch percentile := strings.HasPrefix(unit, "p") && strings.Contains(unit, "-ns/"); {
		case percentile || len(all) < len(parts):
		case UnitOf(unit).Added:
			sum := 0.0
			for _, w := range all {
				sum += w
			}
			out = append(out, figure{unit, sum})
		case strings.HasPrefix(unit, "max-ns/"):
			out = append(out, figure{unit, slices.Max(all)})
		case equal:
			out = append(out, figure{unit, v})
		}
	}
	slices.SortFunc(out, func(a, b figure) int { return cmp.Compare(a.Unit, b.Unit) })
	return out
}

// ErrApart is the error for folders of runs that did not measure together, or not at the same time.
var ErrApart = errors.New("not measured at the same time")

// leastOverlap is the smallest allowed share of a cell's time in which all parts measured the cell.
// In the rest of the time, some parts made no load.
const leastOverlap = 0.8

type cellRun struct {
	cell string // the cell's name in results.txt
	run  int
}

func (c cellRun) String() string { return fmt.Sprintf("%s, run %d", c.cell, c.run) }

// span is the time from the first to the last attempt of a cell, in nanoseconds. The field met is
// when the part began the cell, which is the same moment for all parts.
type span struct{ from, until, met int64 }

// Together says how much the measurements of the merged runs (called parts) overlap in time.
type Together struct {
	// Overlap is the smallest share of a cell's time in which all parts measured the cell. The clocks
	// of the parts may differ. Merge corrects this difference by means of the moment at which all
	// parts begin a cell together.
	Overlap float64 `json:"overlap"`
	// Clocks is the largest difference between the clocks of two parts, in seconds. No figure
	// depends on it.
	Clocks float64 `json:"clocks_apart_s,omitempty"`
}

// spans returns when each cell of a part began and ended in each run, by the clock of the part.
func spans(dir string, m Manifest) (map[cellRun]span, error) {
	out, zero := map[cellRun]span{}, m.Started.UnixNano()
	err := scanWhole(dir, func(s Section, attempts []Attempt) error {
		if len(attempts) == 0 || s.Interrupted {
			return nil
		}
		one := span{attempts[0].Asked, attempts[0].Answered, s.MetNs}
		for _, a := range attempts {
			one.from, one.until = min(one.from, a.Asked), max(one.until, a.Answered, a.Done)
		}
		out[cellRun{s.Name(), s.Run}] = one.later(zero)
		return nil
	})
	return out, err
}

func (s span) later(by int64) span { return span{s.from + by, s.until + by, s.met + by} }

// overlap computes for each cell the share of its time in which all parts measured the cell, and
// returns the smallest share. If this is below leastOverlap, the error wraps [ErrApart].
func overlap(dirs []string, all []Manifest, cells []string) (Together, error) {
	t := Together{Overlap: 1}
	parts := make([]map[cellRun]span, len(dirs))
	for i, dir := range dirs {
		var err error
		if parts[i], err = spans(dir, all[i]); err != nil {
			return t, err
		}
	}
	t.Clocks = align(parts).Seconds()
	var worst error
	for key := range parts[0] {
		if share, why := shared(key, parts, dirs); share < t.Overlap && slices.Contains(cells, key.cell) {
			t.Overlap, worst = share, why
		}
	}
	if t.Overlap < leastOverlap {
		return t, fmt.Errorf("%w: %w", ErrApart, worst)
	}
	return t, nil
}

// shared divides the time in which all parts measured a cell by the longest time of one part. The
// error, which is never nil, names the part that began last and the part that ended first.
func shared(key cellRun, parts []map[cellRun]span, dirs []string) (float64, error) {
	last, first := 0, 0 // the part that began last, and the part that ended first
	longest := int64(1)
	for i, part := range parts {
		s, ok := part[key]
		if !ok {
			return math.Inf(-1), fmt.Errorf("%s has nothing of %s", dirs[i], key)
		}
		if s.from > parts[last][key].from {
			last = i
		}
		if s.until < parts[first][key].until {
			first = i
		}
		longest = max(longest, s.until-s.from)
	}
	common := parts[first][key].until - parts[last][key].from
	share := float64(common) / float64(longest) // negative if the parts do not overlap, and lower if they are farther apart
	if common < 0 {
		return share, fmt.Errorf("%s was done with %s %v before %s began", dirs[first], key, time.Duration(-common).Round(time.Millisecond), dirs[last])
	}
	return share, fmt.Errorf("all measured %s at once for %.0f %% of its time only, %v of %v; %s began last, %s was done first",
		key, 100*share, time.Duration(common).Round(time.Millisecond), time.Duration(longest).Round(time.Millisecond), dirs[last], dirs[first])
}

// align converts the times of all parts to the clock of the first part, and returns the largest
// difference between two clocks. The difference of a part is its median over all cells, because a
// part on a busy machine may begin a few cells late.
func align(parts []map[cellRun]span) time.Duration {
	var low, high int64
	for _, part := range parts {
		var ahead []int64
		for key, s := range part {
			if first, ok := parts[0][key]; ok {
				ahead = append(ahead, s.met-first.met)
			}
		}
		if len(ahead) == 0 {
			continue // function shared returns an error for the missing cells
		}
		slices.Sort(ahead)
		by := ahead[len(ahead)/2]
		low, high = min(low, by), max(high, by)
		for key, s := range part {
			part[key] = s.later(-by)
		}
	}
	return time.Duration(high - low)
}
