package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
)

// safetyColumns are those of the verdict table.
var safetyColumns = []column[check.Cell]{
	textColumn("fault", func(c check.Cell) string { return c.Fault }),
	textColumn("backend", func(c check.Cell) string { return c.Backend }),
	textColumn("verdict", verdictOf),
	numberColumn("locks hit", func(c check.Cell) cell { return word(fmt.Sprint(c.Hits)) }),
	numberColumn("double grants", func(c check.Cell) cell { return word(fmt.Sprint(max(c.Overlaps, c.Linear))) }),
	numberColumn("longest", func(c check.Cell) cell { return word(brief(c.Belief, c.Belief > 0)) }),
	numberColumn("stale writes: no guard", func(c check.Cell) cell { return word(fmt.Sprint(c.StaleBare)) }),
	numberColumn("guard", func(c check.Cell) cell { return word(fmt.Sprint(c.StaleGuarded)) }),
	numberColumn("least warning", func(c check.Cell) cell { return word(brief(c.Margin, c.Margins > 0)) }),
	numberColumn("false losses", func(c check.Cell) cell { return word(fmt.Sprint(c.FalseLosses)) }),
	numberColumn("unavailable", func(c check.Cell) cell { return word(brief(c.Unavailable, c.Unavailable > 0)) }),
	numberColumn("recovery", func(c check.Cell) cell { return word(brief(c.Recovery, c.Recovery > 0)) }),
}

func verdictOf(c check.Cell) string {
	if c.Control {
		return string(c.Class) + " (control)"
	}
	return string(c.Class)
}

// brief shows nanoseconds in at most three digits or so.
func brief(ns int64, known bool) string {
	if !known {
		return "-"
	}
	d := time.Duration(ns)
	switch {
	case d.Abs() >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d.Abs() >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// safetyTable is the verdict table, of the cells that were run.
func (r Report) safetyTable() grid {
	run := filter(r.Verdict.Cells, func(c check.Cell) bool { return c.Class != check.ClassNotRun })
	return tabulate(grid{Title: "safety: one host holds 20 locks, another one wants them, a fault is injected", Keys: 2}, safetyColumns, run)
}

// safetyNotes say what the table has no room for: violations, reasons, and
// what was not run.
func (r Report) safetyNotes() []string {
	var broken, why, missing []string
	for _, c := range r.Verdict.Cells {
		where := c.Backend + " under " + c.Fault
		switch {
		case c.Class == check.ClassNotRun:
			missing = append(missing, fmt.Sprintf("not run: %s: %s", where, c.Why))
			continue
		case c.Class == check.ClassBroken:
			broken = append(broken, c.Violations...)
		}
		if c.Why != "" {
			why = append(why, fmt.Sprintf("%s: %s: %s", where, c.Class, c.Why))
		}
	}
	return slices.Concat(broken, why, missing)
}
