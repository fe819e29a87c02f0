package results

import (
	"errors"
	"fmt"
	"math"
	"slices"
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

// span is when a cell was measured, and when the part went on to it, in
// nanoseconds.
type span struct{ from, until, met int64 }

// Together says how well the parts of a measurement overlapped.
type Together struct {
	// Overlap is the least share of a cell's time in which all parts measured
	// it. They were ready for all of their cells at the same instants, which show
	// how their clocks stand to each other.
	Overlap float64 `json:"overlap"`
	// Clocks is how far their clocks were apart, in seconds; nothing depends on it.
	Clocks float64 `json:"clocks_apart_s,omitempty"`
}

// spans reads when each cell was measured by the machine's clock.
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

// overlap finds how well the cells of all folders coincide. The error wraps
// [ErrApart] and says by how much they do not.
func overlap(dirs []string, all []Manifest) (Together, error) {
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
		if share, why := shared(key, parts, dirs); share < t.Overlap {
			t.Overlap, worst = share, why
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

// align moves the spans of all parts to the clock of the first, and returns how
// far their clocks are apart. A part that goes on late, because its machine is
// busy, does so now and then: the median over all cells is the clock's.
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
			continue // nothing of it can be compared, which is said later
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
