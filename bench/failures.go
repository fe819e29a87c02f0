package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// downTimeout limits the wait for a store's answer after a measurement on that store has failed.
// Without an answer, the run skips the next measurement on that store.
const downTimeout = time.Second

// failures lists the failed measurements (cells) of a run, which have no figures. If one subject (a
// backend or a baseline) fails, the run goes on with other subjects. The zero value can be used.
type failures struct {
	cells []results.FailedCell
	of    []failure        // of[i] is the failure of cells[i]
	last  map[string]error // by subject: the error of its last cell, if that cell failed
}

type failure struct {
	kind results.Kind
	err  error
}

// add records that the subject sub has no figures for the measurement called label in this run. An
// empty label means that no measurement of that subject has figures.
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

func (f *failures) served(sub *subject) { delete(f.last, sub.Name) }

// down returns an error if the last measurement of the subject sub failed and the subject's store
// still does not answer. Without this check, callers would wait for that store in each measurement.
func (f *failures) down(ctx context.Context, sub *subject) error {
	if f.last[sub.Name] == nil || sub.check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if err := sub.check(ctx); err != nil {
		return sub.dead(fmt.Errorf("not tried, as its store still does not answer: %w", err))
	}
	return nil
}

// hopeless reports whether the last measurement of every plugin failed with an EnvError, which says
// that the server or the plugin cannot be used.
func (f *failures) hopeless(subjects []*subject) bool {
	for _, sub := range subjects {
		var dead *EnvError
		if sub.Kind == results.KindPlugin && !errors.As(f.last[sub.Name], &dead) {
			return false
		}
	}
	return true
}

// sums returns one error for each subject with failed measurements. If baselines is true, it covers
// only baselines. If baselines is false, it covers only other subjects.
func (f *failures) sums(baselines bool) (sums []error) {
	count := map[string]int{}
	for _, c := range f.cells {
		count[c.Backend]++
	}
	for i, c := range f.cells {
		n, err := count[c.Backend], f.of[i].err
		delete(count, c.Backend) // the error of the first cell represents all cells of the subject
		switch {
		case n == 0 || baselines != (f.of[i].kind == results.KindBaseline):
			continue
		case c.Cell == "": // err names the subject
		case n == 1:
			err = fmt.Errorf("%s: %w", c.Backend, err)
		default:
			err = fmt.Errorf("%s: %d cells failed, the first: %w", c.Backend, n, err)
		}
		sums = append(sums, err)
	}
	return sums
}

// err returns the error that makes the run fail. It is nil if no measurement failed, or if only
// measurements of baselines failed.
func (f *failures) err() error { return errors.Join(f.sums(false)...) }

// besides returns one line for each failed baseline. The report shows these lines, but they do not
// make the run fail.
func (f *failures) besides() (lines []string) {
	for _, err := range f.sums(true) {
		lines = append(lines, oneLine(err))
	}
	return lines
}
