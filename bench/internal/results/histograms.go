package results

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histograms store latencies from 1 ns to one hour, with three significant digits.
const (
	histogramMax    = int64(time.Hour)
	histogramDigits = 3
)

// HistogramKey identifies a histogram by its cell (a subject under one load) and its operation.
type HistogramKey struct {
	CellName
	Op string // "acquire", "renew", "takeover"
}

// tag returns the key as one text, for example
// "takeover/backend=NAME/mode=kill-host/hosts=2/clients=1/op=takeover".
func (k HistogramKey) tag() string { return k.CellName.tag() + "/op=" + k.Op }

func byTag(a, b HistogramKey) int { return cmp.Compare(a.tag(), b.tag()) }

// parseTag parses the name of a cell as written in results.txt or in histograms.hlog.
func parseTag(tag string) HistogramKey {
	var k HistogramKey
	var rest string
	k.Scenario, rest, _ = strings.Cut(tag, "/")
	parts := append(k.parts(), tagPart{"op", &k.Op})
	for part := range strings.SplitSeq(rest, "/") {
		key, value, _ := strings.Cut(part, "=")
		i := slices.IndexFunc(parts, func(p tagPart) bool { return p.key == key })
		if i < 0 {
			continue
		}
		switch to := parts[i].value.(type) {
		case *string:
			*to = value
		case *int:
			*to, _ = strconv.Atoi(value) // no error, because lockbench wrote this number
		case *time.Duration:
			*to, _ = time.ParseDuration(value)
		}
	}
	return k
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, histogramMax, histogramDigits)
}

// ReadHistograms reads the latencies of a folder, in nanoseconds, and merges the runs of each cell.
// If a line is damaged or cut off, it omits this line and all later lines, without an error.
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

// scanHistograms calls emit for each line of the file. The first line for a key is from the first
// run, the second line from the second run, and so on.
func scanHistograms(f io.Reader, emit func(HistogramKey, *hdrhistogram.Histogram)) {
	for r := hdrhistogram.NewHistogramLogReader(f); ; {
		h, err := r.NextIntervalHistogram()
		if err != nil || h == nil {
			return // the rest cannot be read
		}
		emit(parseTag(h.Tag()), h)
	}
}

func newHistogramLog(w io.Writer, started time.Time) (*hdrhistogram.HistogramLogWriter, error) {
	l := hdrhistogram.NewHistogramLogWriter(w)
	l.SetBaseTime(started.UnixMilli())
	return l, errors.Join(
		l.OutputLogFormatVersion(), l.OutputComment("latencies in nanoseconds; one interval per cell, run and operation"),
		l.OutputStartTime(started.UnixMilli()), l.OutputLegend(),
	)
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
		if err := writeInterval(l, HistogramKey{c.CellName, op}, h, end.Add(-c.Elapsed), end); err != nil {
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
