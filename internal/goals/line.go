// Package goals judges the plugins against the libraries that a user would
// pick instead, from result folders of lockbench alone: scripts/bench-peers
// measures them, and make bench-peers does both.
//
// [Goals] is the table of what is to be reached and of where each figure comes
// from. A goal whose figures are missing counts as missed.
package goals

import (
	"fmt"
	"strings"

	"github.com/lockbench/lockbench/internal/stat"
)

// Line is a goal with what was measured of it.
type Line struct {
	Goal
	// Measured is in the goal's unit: the median over runs with its confidence
	// interval, or what the goal's figure says of itself.
	Measured stat.Estimate
	// Note is what there is to say beside the figure; "" for nothing.
	Note string
	// Missing says why nothing was measured; "" when it was.
	Missing string
	OK      bool
}

// Judge holds the goals against the folders.
func Judge(goals []Goal, folders []Folder) []Line {
	var out []Line
	for _, g := range goals {
		e, note, err := g.figure(folders)
		l := Line{Goal: g, Measured: e, Note: note, OK: err == nil && g.meets(e.Center)}
		if err != nil {
			l.Missing = err.Error()
		}
		out = append(out, l)
	}
	return out
}

// Missed counts the lines that are not ok.
func Missed(lines []Line) (n int) {
	for _, l := range lines {
		if !l.OK {
			n++
		}
	}
	return n
}

// String is the line as it is printed, such as
// "P2/64 1.47 [1.41 1.52] goal >= 1.4 ok".
func (l Line) String() string {
	if l.Missing != "" {
		return fmt.Sprintf("%s not run (%s) goal %s missed", l.ID, l.Missing, l.Wanted())
	}
	line := fmt.Sprintf("%s %s goal %s %s", l.ID, l.Figure(), l.Wanted(), l.Outcome())
	if l.Note != "" {
		line += " (" + l.Note + ")"
	}
	return line
}

// Shown is the line of what is not judged: what it is about, and the figure.
func (l Line) Shown() string {
	if l.Missing != "" {
		return fmt.Sprintf("%s: not run (%s)", l.What, l.Missing)
	}
	return l.What + " " + l.Figure()
}

// Figure is what was measured with its interval, "[-]" for too few runs.
func (l Line) Figure() string {
	interval := "[-]"
	if l.Measured.Bounded() {
		interval = fmt.Sprintf("[%s %s]", number(l.Measured.Lo), number(l.Measured.Hi))
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", number(l.Measured.Center), interval, l.Unit))
}

// Outcome is "ok" or "missed".
func (l Line) Outcome() string {
	if l.OK {
		return "ok"
	}
	return "missed"
}

// Wanted is the goal, such as ">= 1.4" or "<= 100 ms".
func (g Goal) Wanted() string {
	sign := "<="
	if g.AtLeast {
		sign = ">="
	}
	return strings.TrimSpace(fmt.Sprintf("%s %v %s", sign, g.Limit, g.Unit))
}

func (g Goal) meets(v float64) bool {
	if g.AtLeast {
		return v >= g.Limit
	}
	return v <= g.Limit
}

// number has three significant digits, and no exponent.
func number(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1 || v <= -0.1 || v == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
