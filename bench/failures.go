package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// downTimeout is how long a store whose last cell failed has to answer before its
// next cell is measured.
const downTimeout = time.Second

// failures are the cells of a run that have no figures. A subject that is slow,
// dead or wrong costs its own cells and not the comparison of the others. The
// zero value is ready.
type failures struct {
	cells []results.FailedCell
	of    []failure        // one for each of these cells
	last  map[string]error // by subject whose last cell failed
}

type failure struct {
	kind results.Kind
	err  error
}

// add notes that a cell of sub has no figures in one run, or without a label that no
// cell of sub has any.
func (f *failures) add(sub *subject, label string, run int, err error) {
	if f.last == nil {
		f.last = map[string]error{}
	}
	f.last[sub.Name] = err
	f.cells = append(f.cells, results.FailedCell{Backend: sub.Name, Cell: label, Run: run, Reason: oneLine(err)})
	if label != "" {
		err = fmt.Errorf("%s, run %d: %w", label, run, err)
	}
	f.of = append(f.of, failure{sub.Kind, err})
}

// served notes that a cell of sub has figures.
func (f *failures) served(sub *subject) { delete(f.last, sub.Name) }

// down returns an error if the last cell of sub failed and its store does not answer.
// Callers would otherwise wait for that store in every cell until their time is over.
func (f *failures) down(ctx context.Context, sub *subject) error {
	if f.last[sub.Name] == nil || sub.check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if err := sub.check(ctx); err != nil {
		return &EnvError{Backend: sub.Name, Err: at(sub.address, fmt.Errorf("not tried, as its store still does not answer: %w", err))}
	}
	return nil
}

// hopeless reports whether the last cell of every plugin failed and its store is
// down, so that no plugin is left to measure.
func (f *failures) hopeless(subjects []*subject) bool {
	for _, sub := range subjects {
		var dead *EnvError
		if sub.Kind == results.KindPlugin && !errors.As(f.last[sub.Name], &dead) {
			return false
		}
	}
	return true
}

// sums sum up the failed cells of each baseline, or of each other subject.
func (f *failures) sums(baselines bool) (sums []error) {
	count := map[string]int{}
	for _, c := range f.cells {
		count[c.Backend]++
	}
	for i, c := range f.cells {
		n, err := count[c.Backend], f.of[i].err
		delete(count, c.Backend) // its first cell stands for all
		switch {
		case n == 0 || baselines != (f.of[i].kind == results.KindBaseline):
			continue
		case c.Cell == "": // err names its subject
		case n == 1:
			err = fmt.Errorf("%s: %w", c.Backend, err)
		default:
			err = fmt.Errorf("%s: %d cells failed, the first: %w", c.Backend, n, err)
		}
		sums = append(sums, err)
	}
	return sums
}

// err is the error that makes the run fail; it is nil when every cell of a plugin and
// every floor has its figures.
func (f *failures) err() error { return errors.Join(f.sums(false)...) }

// besides are the failures of baselines, one line each. They are shown, and fail no
// run.
func (f *failures) besides() (lines []string) {
	for _, err := range f.sums(true) {
		lines = append(lines, oneLine(err))
	}
	return lines
}
