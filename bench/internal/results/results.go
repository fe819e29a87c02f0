package results

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/perf/benchfmt"
)

// Unit is what is known of a figure of results.txt, in the order in which a
// report shows them. Of times without an entry, such as "p90-ns/wait", the name
// says enough.
type Unit struct {
	Name     string // as it is written: "cycles/s"
	Title    string // of its column; "" for none
	Interval bool   // is shown with one, as the first figure of an operation
	Better   string // "lower", "higher", or "" for neither; a time is better lower
	Added    bool   // the sum is that of all parts that measure together
	Tested   bool   // see [Tested]
}

// Units are all that have a column, or are no times.
var Units = []Unit{
	{Name: "p50-ns/acquire", Title: "acquire p50", Interval: true},
	{Name: "p99-ns/acquire", Title: "p99"},
	{Name: "p99.9-ns/acquire", Title: "p99.9"},
	{Name: "max-ns/acquire", Title: "worst"},
	{Name: "p50-ns/open-acquire", Title: "open p50"},
	{Name: "p99-ns/open-acquire", Title: "open p99"},
	{Name: "max-ns/open-acquire", Title: "open max"},
	{Name: "offered/s", Added: true},
	{Name: "drops", Better: "lower", Added: true},
	{Name: "open-refused", Added: true},
	{Name: "p50-ns/renew", Title: "renew p50"},
	{Name: "p50-ns/release", Title: "release p50"},
	{Name: "cycles/s", Title: "cycles/s", Interval: true, Better: "higher", Added: true, Tested: true},
	{Name: "p50-ns/handoff", Title: "handoff p50", Interval: true},
	{Name: "p99-ns/handoff", Title: "p99"},
	{Name: "max-ns/wait", Title: "longest wait"},
	{Name: "jain", Title: "Jain fairness", Better: "higher"},
	{Name: "grants/s", Title: "grants/s", Interval: true, Better: "higher", Added: true, Tested: true},
	{Name: "commands/grant", Title: "commands/grant", Better: "lower", Tested: true},
	{Name: "sent-commands/grant", Title: "sent by clients", Better: "lower"},
	{Name: "server-ns/grant", Title: "server's time/grant"},
	{Name: "idle-commands/s", Title: "idle commands/s", Better: "lower"},
	{Name: "p50-ns/takeover", Title: "takeover p50", Interval: true},
	{Name: "max-ns/takeover", Title: "longest"},
	{Name: "max-ns/overdue", Title: "past the TTL"},
	{Name: "band-low-ns/takeover"},
	{Name: "band-high-ns/takeover"},
	{Name: "early", Title: "early", Better: "lower", Added: true},
	{Name: "late", Title: "late", Better: "lower", Added: true},
	{Name: "p50-ns/observed", Title: "seen by a follower p50"},
	{Name: "p50-ns/vacant", Title: "without a leader p50"},
	{Name: "max-ns/notice", Title: "knew after"},
	{Name: "stale-writes", Title: "stale writes", Better: "lower", Added: true},
	{Name: "kept", Title: "kept", Better: "higher"},
	{Name: "p50-ns/first-grant", Title: "start to first grant p50", Interval: true},
	{Name: "idle-bytes/plugin", Title: "plugin idle", Better: "lower", Tested: true},
	{Name: "held-bytes/plugin", Title: "plugin holding"},
	{Name: "plugin-bytes/lease", Title: "plugin a lease", Better: "lower"},
	{Name: "host-bytes/lease", Title: "host a lease", Better: "lower", Tested: true},
	{Name: "p50-ns/call", Title: "call p50", Interval: true},
	{Name: "p99-ns/call", Title: "p99"},
	{Name: "calls/s", Title: "calls/s", Interval: true, Better: "higher", Added: true, Tested: true},
	{Name: "lost-leases", Title: "lost-leases", Better: "lower", Added: true},
	{Name: "renewal-cpu-%", Title: "renewal-cpu-%", Better: "lower"},
}

// UnitOf returns the entry of a unit, with the name alone where there is none.
func UnitOf(name string) Unit {
	for _, u := range Units {
		if u.Name == name {
			return u
		}
	}
	return Unit{Name: name}
}

// better is what results.txt says of a unit.
func better(name string) string {
	u := UnitOf(name)
	if strings.Contains(name, "-ns/") {
		u.Better = "lower"
	}
	if u.Better == "" {
		return ""
	}
	return "better=" + u.Better + " "
}

// Tested chooses the figures that are compared: the middle and the tail of each
// latency, and rates. The others follow from them, or are about the load and not
// about the backend.
func Tested(name string) bool {
	if what, op, ok := strings.Cut(name, "-ns/"); ok {
		return (what == "p50" || what == "p99") && op != "lag"
	}
	return UnitOf(name).Tested
}

// Hidden reports whether a unit without a title needs no column: others of its
// operation say enough, or a chart does.
func Hidden(name string) bool {
	known := slices.ContainsFunc(Units, func(u Unit) bool { return u.Name == name })
	return known || slices.ContainsFunc([]string{"p50-", "p90-", "p99-", "p99.9-", "max-"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// quantiles are what is written of each operation, and the least number of
// samples that one is worth: five beyond the quantile.
var quantiles = []struct {
	name    string
	q       float64
	samples int64
}{
	{"p50", 0.50, 1},
	{"p90", 0.90, 50},
	{"p99", 0.99, 500},
	{"p99.9", 0.999, 5000},
}

// operations are those whose latencies every file declares, by quantile, and the
// longest.
var operations = []string{"acquire", "open-acquire", "lag", "release", "renew", "call", "handoff", "wait", "takeover", "overdue", "observed", "vacant", "notice", "first-grant"}

// writeHeader writes what holds for all lines. Nothing here may differ
// between backends: benchstat makes a table of its own for each
// configuration.
func writeHeader(w io.Writer, m Manifest) error {
	var b strings.Builder
	fmt.Fprintf(&b, "lockbench-format: %d\n", Format)
	fmt.Fprintf(&b, "goos: %s\ngoarch: %s\n", m.Machine.OS, m.Machine.Arch)
	if m.Machine.CPU != "" {
		fmt.Fprintf(&b, "cpu: %s\n", m.Machine.CPU)
	}
	declared := map[string]bool{}
	declare := func(unit string) {
		if !declared[unit] {
			fmt.Fprintf(&b, "Unit %s %sassume=nothing\n", unit, better(unit))
		}
		declared[unit] = true
	}
	for _, op := range operations {
		for _, q := range quantiles {
			declare(q.name + "-ns/" + op)
		}
		declare("max-ns/" + op)
	}
	for _, u := range Units {
		declare(u.Name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeResult writes one line: compared dimensions in the name, then values.
func writeResult(w io.Writer, c Cell) error {
	return writeLine(w, c.Section.cell(), c.Cycles, c.figures())
}

func writeLine(w io.Writer, cell CellName, cycles int, figures []figure) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Benchmark%s %d", cell.Name(), max(1, cycles))
	for _, v := range figures {
		fmt.Fprintf(&b, " %s %s", number(v.Value), v.Unit)
	}
	_, err := io.WriteString(w, b.String()+"\n")
	return err
}

// figure is a value with its unit.
type figure struct {
	Unit  string
	Value float64
}

func (c Cell) figures() []figure {
	var out []figure
	for _, op := range slices.Sorted(maps.Keys(c.Latencies)) {
		sorted := slices.Sorted(slices.Values(c.Latencies[op]))
		out = append(out, percentiles(op, int64(len(sorted)), func(q float64) float64 { return Quantile(sorted, q) })...)
	}
	for _, unit := range slices.Sorted(maps.Keys(c.Values)) {
		if v := c.Values[unit]; !math.IsInf(v, 0) && !math.IsNaN(v) {
			out = append(out, figure{unit, v})
		}
	}
	return out
}

// percentiles are those of an operation that so many samples are worth.
func percentiles(op string, samples int64, at func(q float64) float64) []figure {
	var out []figure
	for _, q := range quantiles {
		if samples >= q.samples {
			out = append(out, figure{q.name + "-ns/" + op, at(q.q)})
		}
	}
	return out
}

// Quantile returns the q-quantile of sorted values by the nearest rank, 0 of
// none.
func Quantile(sorted []int64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	return float64(sorted[min(max(rank, 0), len(sorted)-1)])
}

func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.6g", v)
}

// Result is one line of results.txt.
type Result struct {
	CellName
	Cycles int
	Values map[string]float64 // by unit as written: "p50-ns/acquire"
}

// ReadResults reads results.txt of a folder, in the order of the file: the
// n-th line of a cell is its n-th run. A line that was cut is left out.
func ReadResults(dir string) ([]Result, error) {
	var out []Result
	_, err := ScanResults(dir, func(res *benchfmt.Result) { out = append(out, parseResult(res)) })
	return out, err
}

// ScanResults calls emit for each line of results.txt of a folder, in the
// order of the file, and returns what the file says of its units. A line that
// was cut is left out. What emit is given is used again.
func ScanResults(dir string, emit func(*benchfmt.Result)) (benchfmt.UnitMetadataMap, error) {
	b, err := os.ReadFile(filepath.Join(dir, ResultsFile))
	if err != nil {
		return nil, err
	}
	return scanResults(b, emit)
}

func scanResults(b []byte, emit func(*benchfmt.Result)) (benchfmt.UnitMetadataMap, error) {
	b = b[:bytes.LastIndexByte(b, '\n')+1] // a number that was cut is still a number
	r := benchfmt.NewReader(bytes.NewReader(b), ResultsFile)
	for r.Scan() {
		// One without a name is no line of ours.
		if res, ok := r.Result().(*benchfmt.Result); ok && len(res.Name.Base()) > 0 {
			emit(res)
		}
	}
	return r.Units(), r.Err()
}

// Values are the figures of a line with their units as they were written. What
// is no finite number was not written by lockbench, and is left out.
func Values(res *benchfmt.Result) iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for _, v := range res.Values {
			unit, value := v.OrigUnit, v.OrigValue
			if unit == "" {
				unit, value = v.Unit, v.Value
			}
			if !math.IsInf(value, 0) && !math.IsNaN(value) && !yield(unit, value) {
				return
			}
		}
	}
}

func parseResult(rec *benchfmt.Result) Result {
	name := rec.Name.String()
	key := parseTag(strings.ToLower(name[:1]) + name[1:])
	return Result{CellName: key.CellName, Cycles: rec.Iters, Values: maps.Collect(Values(rec))}
}

// Latencies from 1 ns to an hour keep three digits.
const (
	histogramMax    = int64(time.Hour)
	histogramDigits = 3
)

// HistogramKey says what a histogram is of.
type HistogramKey struct {
	CellName
	Op string // "acquire", "renew", "takeover"
}

// tag is the cell's name with the operation, such as
// "takeover/backend=NAME/mode=kill-host/hosts=2/clients=1/op=takeover".
func (k HistogramKey) tag() string { return k.CellName.tag() + "/op=" + k.Op }

func byTag(a, b HistogramKey) int { return cmp.Compare(a.tag(), b.tag()) }

// parseTag reads what names a cell in both files.
func parseTag(tag string) HistogramKey {
	scenario, rest, _ := strings.Cut(tag, "/")
	var k HistogramKey
	k.Scenario = scenario
	for part := range strings.SplitSeq(rest, "/") {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "backend":
			k.Backend = value
		case "mode":
			k.Mode = value
		case "hosts":
			k.Hosts, _ = strconv.Atoi(value) // lockbench has written it
		case "clients":
			k.Clients, _ = strconv.Atoi(value)
		case "keys":
			k.Keys, _ = strconv.Atoi(value)
		case "hold":
			k.Hold, _ = time.ParseDuration(value)
		case "op":
			k.Op = value
		}
	}
	return k
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, histogramMax, histogramDigits)
}

// ReadHistograms reads the latencies of a folder, in nanoseconds, the runs of
// a cell merged. A line that was cut, and what follows one that is damaged, is
// left out.
func ReadHistograms(dir string) (map[HistogramKey]*hdrhistogram.Histogram, error) {
	out := map[HistogramKey]*hdrhistogram.Histogram{}
	return out, openHistograms(dir, func(key HistogramKey, h *hdrhistogram.Histogram) {
		if out[key] == nil {
			out[key] = newHistogram()
		}
		out[key].Merge(h)
	})
}

func openHistograms(dir string, emit func(HistogramKey, *hdrhistogram.Histogram)) error {
	f, err := os.Open(filepath.Join(dir, HistogramsFile))
	if err != nil {
		return err
	}
	scanHistograms(f, emit)
	return f.Close()
}

// scanHistograms calls emit for each line, in the order of the file: the n-th of
// a cell and operation is that of its n-th run.
func scanHistograms(f io.Reader, emit func(HistogramKey, *hdrhistogram.Histogram)) {
	for r := hdrhistogram.NewHistogramLogReader(f); ; {
		h, err := r.NextIntervalHistogram()
		if err != nil || h == nil {
			return // what follows cannot be read
		}
		emit(parseTag(h.Tag()), h)
	}
}

// newHistogramLog begins a log, of one interval histogram per cell, run and
// operation.
func newHistogramLog(w io.Writer, started time.Time) (*hdrhistogram.HistogramLogWriter, error) {
	l := hdrhistogram.NewHistogramLogWriter(w)
	l.SetBaseTime(started.UnixMilli())
	if err := l.OutputLogFormatVersion(); err != nil {
		return nil, err
	}
	if err := l.OutputComment("latencies in nanoseconds; one interval per cell, run and operation"); err != nil {
		return nil, err
	}
	if err := l.OutputStartTime(started.UnixMilli()); err != nil {
		return nil, err
	}
	return l, l.OutputLegend()
}

func writeHistograms(l *hdrhistogram.HistogramLogWriter, c Cell) error {
	end := time.Now()
	for _, op := range slices.Sorted(maps.Keys(c.Latencies)) {
		h := newHistogram()
		for _, ns := range c.Latencies[op] {
			if err := h.RecordValue(min(max(ns, 1), histogramMax)); err != nil {
				return err
			}
		}
		if err := writeInterval(l, HistogramKey{c.Section.cell(), op}, h, end.Add(-c.Elapsed), end); err != nil {
			return err
		}
	}
	return nil
}

func writeInterval(l *hdrhistogram.HistogramLogWriter, key HistogramKey, h *hdrhistogram.Histogram, from, to time.Time) error {
	h.SetTag(key.tag())
	h.SetStartTimeMs(from.UnixMilli())
	h.SetEndTimeMs(to.UnixMilli())
	return l.OutputIntervalHistogram(h)
}
