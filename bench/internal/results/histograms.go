package results

import (
	"cmp"
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
			k.Hosts, _ = strconv.Atoi(value) // no error, because lockbench wrote this number
		case "clients":
			k.Clients, _ = strconv.Atoi(value)
		case "keys":
			k.Keys, _ = strconv.Atoi(value)
		case "hold":
			k.Hold, _ = time.ParseDuration(value)
		case "rtt":
			k.RTT, _ = time.ParseDuration(value)
		case "op":
			k.Op = value
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
