package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/results"
)

// Safe says in one line whether the backends, measured through their plugins, were safe. It leaves
// out baselines (libraries without a plugin).
func (r Report) Safe() string {
	if why := r.incomplete(); why != "" {
		return "INCOMPLETE: " + why + "; of what it had measured: " + r.found()
	}
	return r.found()
}

func (r Report) found() string {
	v := r.Verdict
	ours, grants := r.granted(results.KindPlugin)
	of := " grants of " + listed(names(ours))
	if len(v.Cells) > 0 { // the table of scenario safety names the backends
		grants, of = v.Granted(), " grants"
	}
	switch {
	case v.Unsafe() > 0:
		return fmt.Sprintf("UNSAFE: %s in %s%s", plural(v.Unsafe(), "violation"), grouped(float64(grants)), of)
	case grants == 0:
		return "INVALID: nothing was granted, so nothing was checked"
	case len(v.Invalid()) > 0:
		return "INVALID: " + strings.Join(v.Invalid(), "; ")
	case len(v.Cells) > 0:
		said, doubles := fmt.Sprintf("safe: %s grants under faults checked, no claim of a backend is broken", grouped(float64(grants))), 0
		for _, c := range v.Cells {
			doubles += c.Overlaps
		}
		if doubles > 0 {
			said += fmt.Sprintf("; %s, which claims or control rows allow", plural(doubles, "double grant"))
		}
		return said
	}
	return fmt.Sprintf("safe: %s%s checked: no two holders at once, %s", grouped(float64(grants)), of, rising(ours))
}

// The besides method says what the checks found about baselines, which the verdict leaves out. It
// returns "" if no baseline got a lock.
func (r Report) besides() string {
	of, grants := r.granted(results.KindBaseline)
	if grants == 0 {
		return ""
	}
	found := "no two holders at once, " + rising(of)
	if broken := filter(names(of), r.broken); len(broken) > 0 {
		found = "rules broken by " + listed(broken)
	}
	return fmt.Sprintf("baselines, which the verdict is not about: %s grants of %s checked: %s", grouped(float64(grants)), listed(names(of)), found)
}

func (r Report) granted(kind results.Kind) (of []check.Subject, grants int) {
	for _, s := range r.Verdict.Subjects {
		if s.Kind == kind && s.Granted > 0 {
			of, grants = append(of, s), grants+s.Granted
		}
	}
	return of, grants
}

func names(of []check.Subject) []string {
	return distinct(of, func(s check.Subject) string { return s.Backend })
}

func rising(of []check.Subject) string {
	with := names(filter(of, func(s check.Subject) bool { return s.Fencing != "none" }))
	without := names(filter(of, func(s check.Subject) bool { return s.Fencing == "none" }))
	switch {
	case len(without) == 0:
		return "every token higher than those before it"
	case len(with) == 0:
		return "without tokens"
	}
	return fmt.Sprintf("every token of %s higher than those before it; %s without tokens", listed(with), listed(without))
}

// judged says in a few words what the checks found about a subject: "ok, 12,345 grants".
func (r Report) judged(subject string) string {
	i := slices.IndexFunc(r.Verdict.Subjects, func(s check.Subject) bool { return s.Backend == subject })
	if i < 0 {
		return ""
	}
	s := r.Verdict.Subjects[i]
	switch broken := s.Overlaps + s.Tokens; {
	case broken > 0:
		return fmt.Sprintf("BROKEN: %s", plural(broken, "violation"))
	case s.Granted == 0:
		return "no grant"
	}
	return fmt.Sprintf("ok, %s grants", grouped(float64(s.Granted)))
}

func (r Report) broken(subject string) bool { return strings.HasPrefix(r.judged(subject), "BROKEN") }

func (r Report) findings() []string {
	var out []string
	for _, v := range r.Verdict.Violations {
		out = append(out, v.String())
	}
	for _, f := range r.Manifest.Findings {
		out = append(out, "finding: "+f)
	}
	for _, s := range r.Verdict.Subjects {
		if s.Failed > 0 {
			out = append(out, fmt.Sprintf("%s: %d of %d attempts failed", s.Backend, s.Failed, s.Attempts))
		}
	}
	return out
}

// warnings returns reasons to doubt the figures, one line each.
func (r Report) warnings() []string {
	var out []string
	if r.Verdict.Truncated != nil {
		out = append(out, r.Verdict.Truncated.Error())
	}
	if m := r.Manifest; m.Plan.Env == "local" && m.Machine.Files == "tmpfs" && len(r.Verdict.Cells) == 0 {
		out = append(out, "the servers' data were in memory (tmpfs), where an fsync costs nothing: stores that sync are slower on a disk")
	}
	return slices.Concat(out, r.Manifest.Busy(), r.stalls(), r.tripWarnings())
}

// remarks returns lines about facts that are neither in the verdict nor in a table.
func (r Report) remarks() []string {
	besides := filter([]string{r.besides()}, said)
	return slices.Concat(r.parts(), r.failure(), r.Manifest.Notes, r.refusals(), besides, r.omissions())
}

// incomplete returns why a run did not measure its whole plan, or why some of its records are
// missing. It returns "" if the run is complete.
func (r Report) incomplete() string {
	switch r.Manifest.State {
	case results.StateDone:
		if r.Verdict.Truncated != nil {
			return "the run was finished, but its file of events was cut"
		}
	case results.StateInterrupted:
		return "the run was interrupted"
	case results.StateRunning:
		return "the run is still going on, or was killed"
	case results.StateFailed:
		return "the run failed: " + cmp.Or(r.missing(), beginning(r.Manifest.Failure))
	}
	return ""
}

// missing names the backends that lack figures. For each backend, it gives the reason for the first
// missing figure. It returns "" if no backend lacks figures. Baselines do not count.
func (r Report) missing() string {
	lacking := filter(r.Manifest.Failed, func(c results.FailedCell) bool { return !slices.Contains(r.Manifest.Plan.Baselines, c.Backend) })
	var out []string
	for _, g := range groups(lacking, func(c results.FailedCell) string { return c.Backend }) {
		first := g.all[0]
		what := fmt.Sprintf("%s lacks %s", g.key, plural(len(g.all), "cell"))
		if first.Cell == "" {
			what = g.key + " was not measured"
		}
		out = append(out, fmt.Sprintf("%s (%s)", what, beginning(strings.TrimPrefix(first.Reason, g.key+": "))))
	}
	return strings.Join(out, ", ")
}

func (r Report) failure() []string {
	var out []string
	for line := range strings.Lines(r.Manifest.Failure) {
		out = append(out, "failed: "+strings.TrimSpace(line))
	}
	return out
}

// headWidth is about how many characters of an error the verdict shows. The rest is usually a
// library's text that helps few readers. The notes show the whole error.
const headWidth = 60

// beginning returns as many clauses of an error as fit into headWidth. Colons separate clauses.
func beginning(failure string) string {
	line, _, _ := strings.Cut(failure, "\n")
	clauses := strings.Split(line, ": ")
	out := clauses[0]
	for _, c := range clauses[1:] {
		if len(out)+2+len(c) > headWidth {
			break
		}
		out += ": " + c
	}
	return out
}

// A run stalled if its longest operation took at least stallLeast, and at least stallTimes times as
// long as the median of the longest operations of all runs.
const (
	stallLeast = 100 * time.Millisecond
	stallTimes = 10
)

// stallUnits are units of the longest time of an operation, which shows a stall of the server.
// Floors, the cheapest possible calls, have only the last unit.
var stallUnits = []struct{ unit, what string }{
	{"max-ns/acquire", "an acquire"}, {"max-ns/open-acquire", "an acquire of the open loop"}, {"max-ns/renew", "a renewal"},
	{"max-ns/release", "a release"}, {"max-ns/wait", "a wait"}, {"max-ns/call", "a call"},
}

// stall is the longest operation of one subject under one load, in a run that stalled.
type stall struct {
	results.Estimate // of the longest operation of each run
	run              int
	row, cell        string
	unit, what       string
}

func (s stall) took() string { return bare(s.unit, s.Max) }

// stalls returns a line about operations that took very long in only one run. The line names the
// three longest operations.
func (r Report) stalls() []string {
	all := r.stalled()
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b stall) int { return cmp.Compare(b.Max, a.Max) })
	s := all[0]
	line := fmt.Sprintf("run %d of %d differs from the rest: %s of %s took %s (%s); the longest of the median run took %s",
		s.run, s.N, s.what, s.row, s.took(), s.cell, bare(s.unit, s.Center))
	var others []string
	for _, s := range all[1:min(3, len(all))] {
		others = append(others, fmt.Sprintf("%s of %s %s (%s, run %d)", s.what, s.row, s.took(), s.cell, s.run))
	}
	if len(all) > 3 {
		others = append(others, fmt.Sprintf("%d more", len(all)-3))
	}
	if len(others) > 0 {
		line += "; so do " + listed(others)
	}
	return []string{line}
}

func (r Report) stalled() []stall {
	var out []stall
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			for _, of := range stallUnits {
				e := row.Figures[of.unit]
				if e.N < 3 || e.Max < float64(stallLeast) || e.Max < stallTimes*e.Center {
					continue
				}
				run := slices.Index(row.Runs[of.unit], e.Max) + 1
				out = append(out, stall{e, run, row.Name, t.Scenario + ", " + t.load(), of.unit, of.what})
			}
		}
	}
	return out
}

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

// brief formats a time in nanoseconds with about three digits, or returns "-" if it is unknown.
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

func (r Report) safetyTable() grid {
	run := filter(r.Verdict.Cells, func(c check.Cell) bool { return c.Class != check.ClassNotRun })
	return tabulate(grid{Title: "safety: one host holds 20 locks, another one wants them, a fault is injected", Keys: 2}, safetyColumns, run)
}

// safetyNotes returns texts that are too long for the safety table: violations, reasons for
// verdicts, and faults that were not played on a backend.
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
