package results

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// writeHeader writes the configuration lines at the top of results.txt. These lines must be the
// same for all backends, because benchstat makes a separate table for each configuration.
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

func writeResult(w io.Writer, c Cell) error {
	return writeLine(w, c.CellName, c.Cycles, c.figures())
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
	Values map[string]float64 // by unit in results.txt: "p50-ns/acquire"
}

// ReadResults reads results.txt of a folder. The first line for a cell is from the first run, the
// second line from the second run, and so on. ReadResults omits a last line that was cut off.
func ReadResults(dir string) ([]Result, error) {
	var out []Result
	_, err := ScanResults(dir, func(res *benchfmt.Result) { out = append(out, parseResult(res)) })
	return out, err
}

// ScanResults calls emit for each line of results.txt, in the order of the file, and returns the
// file's unit metadata. It omits a last line that was cut off. After emit has returned, ScanResults
// reuses the Result for the next line.
func ScanResults(dir string, emit func(*benchfmt.Result)) (benchfmt.UnitMetadataMap, error) {
	b, err := os.ReadFile(filepath.Join(dir, ResultsFile))
	if err != nil {
		return nil, err
	}
	return scanResults(b, emit)
}

func scanResults(b []byte, emit func(*benchfmt.Result)) (benchfmt.UnitMetadataMap, error) {
	b = b[:bytes.LastIndexByte(b, '\n')+1] // drops a last line that was cut off, and may be wrong
	r := benchfmt.NewReader(bytes.NewReader(b), ResultsFile)
	for r.Scan() {
		// A line without a name is damaged, because lockbench gives each line a name.
		if res, ok := r.Result().(*benchfmt.Result); ok && len(res.Name.Base()) > 0 {
			emit(res)
		}
	}
	return r.Units(), r.Err()
}

// Values returns the figures of a line in the units of the file. It omits infinite values and NaN,
// which are only in damaged or edited files.
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
