package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/lockbench/lockbench/internal/report"
	"github.com/lockbench/lockbench/internal/results"
	"github.com/lockbench/lockbench/internal/similar"
)

// ErrRegression is the end of a comparison that a limit stops.
var ErrRegression = errors.New("regression")

// Comparison is what to compare: two result folders, or one that holds two builds.
type Comparison struct {
	Dirs   []string
	Filter string   // as of benchstat; "" for every cell
	FailOn []string // limits, as [results.ParseGate] reads them
}

// Compare tests for each figure whether runs differ, and holds it against the
// limits. What it says of limits that passed goes to notes.
func Compare(q Comparison, notes io.Writer) (*Outcome, error) {
	var gates []results.Gate
	for _, text := range q.FailOn {
		g, err := results.ParseGate(text)
		if err != nil {
			return nil, Hinted(usagef("--fail-on %v", err), "--fail-on 'p99-ns/acquire > +10%', 'p50-ns/handoff > 2ms' or 'cycles/s / BASELINE < 1.8'")
		}
		gates = append(gates, g)
	}
	c, err := results.Load(q.Dirs, q.Filter, gates)
	switch {
	case errors.Is(err, results.ErrNoFigure):
		return nil, usagef("--fail-on: %v", err)
	case errors.Is(err, results.ErrPlans) && len(q.Dirs) == 1:
		return nil, Hinted(usagef("%v", err), "name two folders, or make one with lockbench run --vs BIN_DIR")
	case errors.Is(err, results.ErrPlans):
		return nil, Hinted(usagef("%v", err), "run both with the same flags, or interleave them: lockbench run --vs BIN_DIR")
	case errors.Is(err, results.ErrFilter):
		return nil, Hinted(usagef("--filter %q: %v", q.Filter, err), "--filter '/backend:NAME /clients:(8 OR 64)'")
	case errors.Is(err, results.ErrIncomplete):
		return nil, &InvalidError{Err: err}
	case err != nil:
		return nil, err
	}
	shown := &Outcome{write: func(w io.Writer, format string) error {
		switch format {
		case "md":
			return report.ComparisonMarkdown(w, c)
		case "json":
			return report.ComparisonJSON(w, c)
		}
		return report.ComparisonText(w, c)
	}}
	return shown, holdAgainst(c, gates, notes)
}

// holdAgainst turns what the gates say into an error, and says what they could have
// seen.
func holdAgainst(c results.Comparison, gates []results.Gate, notes io.Writer) error {
	var texts []string
	for _, h := range c.Held {
		if h.Broken {
			texts = append(texts, report.HeldLine(h))
		}
	}
	v, unknown := c.Judge(gates)
	if len(unknown) > 0 {
		return Hinted(usagef("--fail-on: no figure of a plugin has the unit %q%s", unknown[0], similar.Suggest(unknown[0], c.Units())),
			"there are "+strings.Join(c.Units(), ", "))
	}
	for _, f := range v.Failed {
		texts = append(texts, fmt.Sprintf("%s: %s changed by %+.1f%% (%s)", report.ShortCell(f.Row.Cell), f.Row.Unit, 100*f.Row.Delta, f.Gate))
	}
	if len(texts) > 0 {
		return fmt.Errorf("%w: %s", ErrRegression, strings.Join(texts, "; "))
	}
	if v.Blind != "" {
		return &InvalidError{Err: fmt.Errorf("--fail-on compares nothing: %s", v.Blind)}
	}
	return insensitive(v.Sensitivities, notes)
}

// insensitive refuses gates that passed because nothing could have stopped there.
func insensitive(all []results.Sensitivity, notes io.Writer) error {
	var blind []string
	for _, p := range all {
		what := fmt.Sprintf("%+.1f%% or more", 100*p.Detectable)
		if math.IsInf(p.Detectable, 0) {
			what = "no change at all"
		}
		line := fmt.Sprintf("--fail-on '%s': these runs could have shown %s of %s in %s", p.Gate, what, p.Row.Unit, report.ShortCell(p.Row.Cell))
		if p.Suffices() {
			fmt.Fprintln(notes, line)
			continue
		}
		blind = append(blind, line)
	}
	if len(blind) == 0 {
		return nil
	}
	err := &InvalidError{Err: fmt.Errorf("too few runs, or too much noise, to show a change of that size: %s", strings.Join(blind, "; "))}
	return Hinted(err, "more runs, a quieter machine, or fewer rows by --filter; or a wider limit")
}
