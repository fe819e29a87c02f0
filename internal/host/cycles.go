package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/record"
)

// Cycle lets callers cycle in the process, without a word to it in between, and
// returns when the last of them is done; the end of ctx is passed on. The error
// is the first that one of them met. What they have recorded stays there until
// [Callers.Attempts] is called.
//
// Note: attempts that were sent as they come, or at the end of each host's own
// loop, would cost the other hosts processor time that is being measured.
func (h *Callers) Cycle(ctx context.Context, c load.Cycles) error {
	c.From, c.Until = c.From-h.offset, c.Until-h.offset
	r, err := h.ask(ctx, call{Op: opCycle, Cycles: &c})
	switch {
	case err != nil:
		return err
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// Attempts are those of the last [Callers.Cycle], with times on the run's clock.
// An error means that they are lost.
func (h *Callers) Attempts() ([]record.Attempt, error) {
	r, err := h.ask(context.Background(), call{Op: opAttempts})
	if err != nil {
		return nil, fmt.Errorf("host: attempts: %w", err)
	}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		a.Asked += h.offset
		a.Answered += h.offset
		if a.End != record.EndOpen {
			a.Ended += h.offset
			a.Done += h.offset
		}
	}
	return r.Attempts, nil
}

// cycle carries out [Callers.Cycle] in the process.
func (c *called) cycle(ctx context.Context, one call) {
	callers := one.Cycles.Run(ctx, c.locker, load.ClockFrom(c.clock.Zero()))
	r := callReply{ID: one.ID}
	c.mu.Lock()
	c.attempts = nil
	for _, caller := range callers {
		c.attempts = append(c.attempts, caller.Attempts...)
		if caller.Err != nil && r.Error == "" {
			r.Error = caller.Err.Error()
		}
	}
	c.forget(one.ID)
	c.mu.Unlock()
	c.reply(r)
}
