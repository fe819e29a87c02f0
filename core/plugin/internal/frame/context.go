package frame

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/internal/latch"
)

// requestCtx is the context of one request in the plugin: it ends when the
// host cancels, when its deadline passes, or with the connection.
//
// Note: context.WithDeadline would do, with a timer for each request, which
// hardly ever fires. Here the session has one timer for all; see deadlines.
type requestCtx struct {
	deadline time.Time // zero: none
	latch.Latch
}

// Deadline implements context.Context.
func (r *requestCtx) Deadline() (time.Time, bool) { return r.deadline, !r.deadline.IsZero() }

// Value implements context.Context.
func (*requestCtx) Value(any) any { return nil }

var _ context.Context = (*requestCtx)(nil)
