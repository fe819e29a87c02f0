package mysql

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

// TestOwnerOfALongRequest checks that an owner with a request under way is not forgotten, even if
// many other owners come. Its withdrawal must then remove the request's queue entry.
func TestOwnerOfALongRequest(t *testing.T) {
	os := newOwners()
	o := os.begin("one")
	for i := range 3 * ownersKept {
		os.end(os.begin(fmt.Sprint(i)), false, false)
	}
	os.end(o, true, false) // it has a queue entry
	os.end(os.begin("one"), false, false)
	if undo, tombstone := os.withdraw(t.Context(), "one"); !undo || tombstone {
		t.Errorf("undo %t, tombstone %t", undo, tombstone)
	}
}

// TestKilledStatementIsNoAnswer lets a caller give up an operation whose statement was killed. A
// part of the statement may have been committed, so the error must not wrap ErrNotSent.
func TestKilledStatementIsNoAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, again := range []bool{false, true} {
		p := &pending{Operation: statement.Operation{Request: driver.Request{Name: "a"}, Again: again}, batcher: &batcher{what: "acquire"}, ctx: ctx}
		p.Open()
		if err := p.wait().Err; errors.Is(err, driver.ErrNotSent) == again || conn.Definite(err) == again || !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("sent before: %t: %v", again, err)
		}
	}
}
