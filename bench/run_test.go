package bench

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// TestFailuresCostTheirOwnCells checks that failures.down asks a subject's store only after a
// measurement of that subject has failed. When the store answers again, failures.down returns nil.
func TestFailuresCostTheirOwnCells(t *testing.T) {
	down := errors.New("connection refused")
	asked := 0
	sick := &subject{Subject: results.Subject{Name: "sick", Kind: results.KindPlugin}}
	sick.check = func(context.Context) error { asked++; return down }
	var f failures
	if err := f.down(t.Context(), sick); err != nil || asked != 0 {
		t.Fatalf("%v after %d questions, before anything failed", err, asked)
	}
	f.add(sick, "acquire, 1 client", 1, &EnvError{Backend: "sick", Err: down})
	if err := f.down(t.Context(), sick); !errors.Is(err, down) {
		t.Errorf("%v, and its store is down", err)
	}
	f.add(sick, "acquire, 8 clients", 1, down)
	sick.check = func(context.Context) error { return nil }
	if err := f.down(t.Context(), sick); err != nil {
		t.Errorf("%v, and it answers again", err)
	}
	healthy := &subject{Subject: results.Subject{Name: "healthy", Kind: results.KindPlugin}}
	f.add(sick, "acquire, 8 clients", 2, &EnvError{Backend: "sick", Err: down})
	if f.hopeless([]*subject{sick, healthy}) || !f.hopeless([]*subject{sick}) {
		t.Error("a run is without hope when no plugin has a store that answers")
	}
	f.served(sick)
	var environment *EnvError
	if err := f.err(); !errors.As(err, &environment) || !strings.Contains(err.Error(), "sick: 3 cells failed, the first: acquire, 1 client, run 1") {
		t.Errorf("%v", err)
	}
	if len(f.cells) != 3 || f.cells[1] != (results.FailedCell{Backend: "sick", Cell: "acquire, 8 clients", Run: 1, Reason: "connection refused"}) {
		t.Errorf("%+v", f.cells)
	}
}

// TestFailuresOfBaselines checks that the report names a failed baseline, but the run succeeds.
func TestFailuresOfBaselines(t *testing.T) {
	var f failures
	f.add(&subject{Subject: results.Subject{Name: "library", Kind: results.KindBaseline}}, "", 0, &EnvError{Backend: "library", Err: errors.New("refused")})
	if err := f.err(); err != nil {
		t.Error(err)
	}
	if lines := f.besides(); len(lines) != 1 || lines[0] != "library: refused" {
		t.Errorf("%q", lines)
	}
}
