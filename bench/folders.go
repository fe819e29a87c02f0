package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/report"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/similar"
)

// PageFile is the file name of the HTML page in a result folder, if the folder has one.
const PageFile = results.ReportFile

// Check judges the safety of a run again, from the records in its result folder.
func Check(dir string) (*Outcome, error) {
	r, err := report.Load(dir)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	_ = r.WriteVerdict(&text) // a write into memory cannot fail
	err = judged(false, r.Verdict, nil)
	if cut := r.Verdict.Truncated; err == nil && cut != nil && r.Manifest.State == results.StateDone {
		err = &InvalidError{fmt.Errorf("invalid: the run was finished, but %w", cut)}
	}
	return &Outcome{text: text.String(), data: verdictDoc(r.Verdict)}, err
}

func verdictDoc(v check.Verdict) any {
	doc := struct {
		Granted    int             `json:"grants_checked"`
		Unsafe     int             `json:"violations_counted"`
		Truncated  bool            `json:"truncated"`
		Subjects   []check.Subject `json:"subjects"`
		Violations []string        `json:"violations"`
		Safety     []check.Cell    `json:"safety,omitempty"`
	}{v.Granted(), v.Unsafe(), v.Truncated != nil, v.Subjects, []string{}, v.Cells}
	for _, x := range v.Violations {
		doc.Violations = append(doc.Violations, x.String())
	}
	return doc
}

// Report computes tables and the verdict from a result folder, and writes them as an HTML page to
// the file called page. It returns the name of that file. If page is "", Report writes to
// [PageFile] in the folder. If page is "-", Report writes no page. If only the page cannot be
// written, Report returns the Outcome with the error.
func Report(dir, page string) (*Outcome, string, error) {
	r, err := report.Load(dir)
	if err != nil {
		return nil, "", err
	}
	if page == "-" {
		return &Outcome{Dir: dir}, "", nil
	}
	if page == "" {
		page = filepath.Join(dir, PageFile)
	}
	f, err := os.Create(page)
	if err != nil {
		return &Outcome{Dir: dir}, "", Hinted(usagef("the page cannot be written: %v", err), "-o FILE names another place, and -o - prints the page")
	}
	return &Outcome{Dir: dir}, page, errors.Join(r.Write(f, "html"), f.Close())
}

// Merge combines the result folders in dirs into the new folder out. Their runs measured together
// on several machines. The lines in busy warn, for example, that a machine had other work.
func Merge(out string, dirs ...string) (busy []string, err error) {
	err = results.Merge(out, dirs...)
	switch {
	case errors.Is(err, results.ErrPlans):
		return nil, usagef("%v", err)
	case errors.Is(err, results.ErrApart):
		return nil, Hinted(&InvalidError{Err: err}, "run them with --parts, which makes them wait for each other")
	case errors.Is(err, results.ErrIncomplete):
		return nil, &InvalidError{Err: err}
	case err != nil:
		return nil, err
	}
	m, err := results.ReadManifest(out)
	return m.Busy(), err
}

// ErrRegression is the error of a comparison in which a figure breaks a limit.
var ErrRegression = errors.New("regression")

// Comparison says what to compare: two result folders, or the two builds in one result folder.
type Comparison struct {
	Dirs   []string
	Filter string   // a filter as benchstat takes it; "" for every cell
	FailOn []string // limits, as [results.ParseGate] reads them
}

// Compare tests which figures differ between two builds, and checks the limits in FailOn. If no
// limit is broken, Compare writes a line to notes for each limit on a change between the builds.
// The line names the smallest change that a test of the compared runs could have shown.
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
	shown := &Outcome{write: func(w io.Writer, format string) error { return report.WriteComparison(w, c, format) }}
	return shown, holdAgainst(c, gates, notes)
}

// holdAgainst returns an error if a figure in the comparison breaks a limit (also called a gate).
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

// insensitive returns an error if the runs are too few or too noisy to show that a limit is broken.
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
