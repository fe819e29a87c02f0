package bench

import (
	"context"
	"encoding/json"
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

// Outcome is the result of a command, in a form that can be shown as text or JSON.
type Outcome struct {
	// Dir is the result folder to show, or "" if the outcome is not about a folder.
	Dir   string
	text  string
	data  any                                    // for JSON
	write func(w io.Writer, format string) error // if set, used instead of text and data
}

// Write writes the outcome as "text", "md" (Markdown) or "json". An outcome about a result folder
// can also be written as "html".
func (o *Outcome) Write(w io.Writer, format string) error {
	switch {
	case o.Dir != "":
		r, err := report.Load(o.Dir)
		if err != nil {
			return err
		}
		return r.Write(w, format)
	case o.write != nil:
		return o.write(w, format)
	case format == "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(o.data)
	}
	_, err := io.WriteString(w, o.text)
	return err
}

// A run can end with one of these errors although lockbench itself worked as it should.
var (
	ErrUnsafe      = errors.New("safety violation")
	ErrInterrupted = errors.New("interrupted")
)

// InvalidError is the error of a run whose figures and verdict mean nothing, for example because no
// lock was granted.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *InvalidError) Unwrap() error { return e.Err }

type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// Hinted returns err with a hint, which says what the user can do about err.
func Hinted(err error, hint string) error { return &hintedError{err, hint} }

// Hint returns the hint of an error. It is "" if the error has none.
func Hint(err error) string {
	var h *hintedError
	switch {
	case errors.As(err, &h):
		return h.hint
	case errors.Is(err, results.ErrNotEmpty):
		return "name another directory, or omit -o"
	}
	return ""
}

// IsUsage reports whether the error is a mistake of the user, who must correct the command.
func IsUsage(err error) bool {
	var usage *UsageError
	return errors.As(err, &usage) || errors.Is(err, results.ErrNotEmpty) || errors.Is(err, results.ErrNotAFolder) || errors.Is(err, results.ErrLater)
}

func orInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// result describes the end of a run that has made a result folder.
type result struct {
	dir         string
	verdict     check.Verdict
	cells       int  // number of measured cells, over all runs of the plan
	interrupted bool // ctx ended before the plan was done; earlier measurements are kept
	closing     error
}

// outcome returns the Outcome of a run that ended with err, and the error to report.
func (r result) outcome(ctx context.Context, err error) (*Outcome, error) {
	shown := &Outcome{Dir: r.dir}
	if r.cells == 0 || err != nil && r.verdict.Granted() == 0 {
		shown, err = nil, orInterrupted(ctx, err)
	}
	return shown, errors.Join(judged(r.interrupted, r.verdict, err), r.closing)
}

func judged(interrupted bool, v check.Verdict, err error) error {
	err = ended(interrupted, v.Unsafe(), v.Granted(), err)
	if cells := v.Invalid(); err == nil && len(cells) > 0 {
		return &InvalidError{Err: fmt.Errorf("invalid: %s", strings.Join(cells, "; "))}
	}
	return err
}

// ended returns the error to report for a run that ended with err. If the run found violations, the
// reported error begins with them.
func ended(interrupted bool, violations, grants int, err error) error {
	switch {
	case violations > 0:
		return errors.Join(fmt.Errorf("%w: %d in %d grants", ErrUnsafe, violations, grants), err)
	case interrupted && !errors.Is(err, ErrInterrupted):
		return errors.Join(ErrInterrupted, err)
	case err == nil && grants == 0:
		return &InvalidError{errors.New("invalid run: nothing was granted, so nothing was checked")}
	}
	return err
}

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
