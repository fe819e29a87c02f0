package record

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies from 1 ns to an hour keep three digits.
const (
	histogramMax    = int64(time.Hour)
	histogramDigits = 3
)

// histogramLog writes one interval histogram per cell, run and operation,
// tagged "scenario/backend/clients/operation".
type histogramLog struct {
	log   *hdrhistogram.HistogramLogWriter
	since time.Time
}

func newHistogramLog(w io.Writer, started time.Time) (*histogramLog, error) {
	l := &histogramLog{log: hdrhistogram.NewHistogramLogWriter(w), since: started}
	if err := l.log.OutputLogFormatVersion(); err != nil {
		return nil, err
	}
	if err := l.log.OutputComment("latencies in nanoseconds; one interval per cell, run and operation"); err != nil {
		return nil, err
	}
	if err := l.log.OutputStartTime(started.UnixMilli()); err != nil {
		return nil, err
	}
	l.log.SetBaseTime(started.UnixMilli())
	return l, l.log.OutputLegend()
}

func (l *histogramLog) write(c Cell) error {
	end := time.Now()
	for _, op := range slices.Sorted(maps.Keys(c.Latencies)) {
		h := hdrhistogram.New(1, histogramMax, histogramDigits)
		for _, ns := range c.Latencies[op] {
			if err := h.RecordValue(min(max(ns, 1), histogramMax)); err != nil {
				return err
			}
		}
		h.SetTag(fmt.Sprintf("%s/%s/%d/%s", c.Scenario, c.Backend, c.Clients, op))
		h.SetStartTimeMs(end.Add(-c.Elapsed).UnixMilli())
		h.SetEndTimeMs(end.UnixMilli())
		if err := l.log.OutputIntervalHistogram(h); err != nil {
			return err
		}
	}
	return nil
}
