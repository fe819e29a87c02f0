package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/internal/results"
)

// incomplete says what is missing of a whole run; "" for nothing.
func (r Report) incomplete() string {
	switch r.Manifest.State {
	case results.StateInterrupted:
		return "the run was interrupted"
	case results.StateRunning:
		return "the run is still going on, or was killed"
	case results.StateFailed:
		return "the run failed: " + cmp.Or(r.missing(), beginning(r.Manifest.Failure))
	}
	return ""
}

// missing says which backends lack figures, and of each why its first ones are
// missing; "" when none does. What baselines lack makes no run incomplete.
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

// failure is why the run failed, as it was met, one line for each subject.
func (r Report) failure() []string {
	var out []string
	for line := range strings.Lines(r.Manifest.Failure) {
		out = append(out, "failed: "+strings.TrimSpace(line))
	}
	return out
}

// headWidth is how much of an error stands in the verdict: what the libraries
// below add says nothing to most, and the notes have it.
const headWidth = 60

// beginning is the first clauses of an error.
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
