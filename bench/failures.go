package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/results"
)

// downTimeout is how long a store that failed in the cell before has to answer,
// before the next one is measured.
const downTimeout = time.Second

// failures are the cells of a run that have no figures. A subject that is slow,
// dead or wrong costs its own cells and not the comparison of the others. The
// zero value is ready.
type failures struct {
	cells []results.FailedCell
	of    []failedSubject
	last  map[string]error // by subject whose cell before failed
}

// failedSubject sums up what failed of one subject.
type failedSubject struct {
	kind  results.Kind
	name  string
	cells int
	whole bool // none of its cells has figures
	first error
}

// add notes that a cell of sub has no figures in one run; without a label, that
// none has any.
func (f *failures) add(sub *subject, label string, run int, err error) {
	if f.last == nil {
		f.last = map[string]error{}
	}
	f.last[sub.Name] = err
	reason := strings.ReplaceAll(err.Error(), "\n", "; ")
	failed := results.FailedCell{Backend: sub.Name, Cell: label, Run: run, Reason: reason}
	f.cells = append(f.cells, failed)
	for i := range f.of {
		if f.of[i].name == sub.Name {
			f.of[i].cells++
			return
		}
	}
	if label != "" {
		err = fmt.Errorf("%s, run %d: %w", label, run, err)
	}
	f.of = append(f.of, failedSubject{kind: sub.Kind, name: sub.Name, cells: 1, whole: label == "", first: err})
}

// served notes that a cell of sub has figures.
func (f *failures) served(sub *subject) { delete(f.last, sub.Name) }

// down returns an error if the cell before of sub failed and its store does not
// answer: callers would wait for it until their time is over, in every cell.
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

// hopeless reports whether the store of every plugin failed in the cell before,
// so that there is nobody left to measure.
func (f *failures) hopeless(subjects []*subject) bool {
	for _, sub := range subjects {
		var dead *EnvError
		if sub.Kind == results.KindPlugin && !errors.As(f.last[sub.Name], &dead) {
			return false
		}
	}
	return true
}

func (s failedSubject) err() error {
	if s.whole {
		return s.first
	}
	if s.cells == 1 {
		return fmt.Errorf("%s: %w", s.name, s.first)
	}
	return fmt.Errorf("%s: %d cells failed, the first: %w", s.name, s.cells, s.first)
}

// err is what makes the run one that failed; nil when every cell of a plugin
// and every floor has its figures.
func (f *failures) err() error {
	var err error
	for _, s := range f.of {
		if s.kind != results.KindBaseline {
			err = errors.Join(err, s.err())
		}
	}
	return err
}

// besides are the failures of baselines, one line each, which are shown and
// judge nobody.
func (f *failures) besides() []string {
	var out []string
	for _, s := range f.of {
		if s.kind == results.KindBaseline {
			out = append(out, strings.ReplaceAll(s.err().Error(), "\n", "; "))
		}
	}
	return out
}
