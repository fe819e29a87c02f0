package record

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"
)

// ErrApart: folders that were to be parts of one measurement were not measured
// at the same time.
var ErrApart = errors.New("not measured at the same time")

// leastOverlap is the share of its time for which each cell must have been
// measured by all parts: outside of it there was less load than their sum says.
const leastOverlap = 0.8

// cellRun names one cell in one run.
type cellRun struct {
	cell string // as in results.txt
	run  int
}

func (c cellRun) String() string { return fmt.Sprintf("%s, run %d", c.cell, c.run) }

// span is when a cell was measured, in nanoseconds.
type span struct{ from, until int64 }

// Together says how well the parts of a measurement overlapped.
type Together struct {
	// Overlap is the least share of a cell's time in which all parts measured
	// it. By a meeting it is counted from when all were ready for the cell, else
	// by the clocks of the machines, which then must be right.
	Overlap float64 `json:"overlap"`
	Met     bool    `json:"met"`
	// Clocks is how far the clocks of parts that met were apart, in seconds;
	// nothing depends on it.
	Clocks float64 `json:"clocks_apart_s,omitempty"`
}

// spans reads when each cell was measured: since the parts were ready for it if
// they met, else by the wall clock. at is where the wall clock stood then.
func spans(dir string, m Manifest) (out map[cellRun]span, at map[cellRun]int64, err error) {
	in, err := os.Open(filepath.Join(dir, EventsFile))
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	out, at = map[cellRun]span{}, map[cellRun]int64{}
	err = ReadEvents(in, func(s Section, attempts []Attempt) error {
		if len(attempts) == 0 || s.Interrupted {
			return nil
		}
		one := span{attempts[0].Asked, attempts[0].Answered}
		for _, a := range attempts {
			one.from, one.until = min(one.from, a.Asked), max(one.until, a.Answered, a.Done)
		}
		zero := -s.MetNs
		if m.Meeting == nil {
			zero = m.Started.UnixNano()
		}
		key := cellRun{benchmarkName(s), s.Run}
		out[key], at[key] = span{one.from + zero, one.until + zero}, m.Started.UnixNano()+s.MetNs
		return nil
	})
	if errors.Is(err, ErrTruncated) {
		err = fmt.Errorf("%w: %s: %w", ErrIncomplete, dir, err)
	}
	return out, at, err
}

// overlap finds how well the cells of all folders coincide. The error wraps
// [ErrApart] and says by how much they do not.
func overlap(dirs []string, all []Manifest) (Together, error) {
	t := Together{Overlap: 1, Met: all[0].Meeting != nil}
	parts, clocks := make([]map[cellRun]span, len(dirs)), make([]map[cellRun]int64, len(dirs))
	for i, dir := range dirs {
		var err error
		if parts[i], clocks[i], err = spans(dir, all[i]); err != nil {
			return t, err
		}
	}
	var worst error
	for key := range parts[0] {
		share, why := shared(key, parts, dirs)
		if share < t.Overlap {
			t.Overlap, worst = share, why
		}
		if low, high := extremes(key, clocks); t.Met {
			t.Clocks = max(t.Clocks, time.Duration(high-low).Seconds())
		}
	}
	if t.Overlap < leastOverlap {
		return t, fmt.Errorf("%w: %w", ErrApart, worst)
	}
	return t, nil
}

// shared is the share of the longest span of a cell in which all parts measured
// it, and what to say if that is too little.
func shared(key cellRun, parts []map[cellRun]span, dirs []string) (float64, error) {
	last, first := 0, 0 // who began last, and who was done first
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
	share := float64(common) / float64(longest) // the worst of those that are apart is the farthest
	if common < 0 {
		return share, fmt.Errorf("%s was done with %s %v before %s began", dirs[first], key, time.Duration(-common).Round(time.Millisecond), dirs[last])
	}
	return share, fmt.Errorf("all measured %s at once for %.0f %% of its time only, %v of %v; %s began last, %s was done first",
		key, 100*share, time.Duration(common).Round(time.Millisecond), time.Duration(longest).Round(time.Millisecond), dirs[last], dirs[first])
}

// extremes are the least and the greatest value that parts have of a cell.
func extremes(key cellRun, of []map[cellRun]int64) (low, high int64) {
	low, high = of[0][key], of[0][key]
	for _, part := range of {
		low, high = min(low, part[key]), max(high, part[key])
	}
	return low, high
}
