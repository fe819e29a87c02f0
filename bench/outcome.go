package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/report"
	"github.com/lockbench/lockbench/bench/internal/results"
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
