package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/results"
)

func TestOutcomeOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want results.Outcome
	}{
		{nil, results.Granted},
		{fmt.Errorf("x: %w", &driver.HeldError{}), results.Refused},
		{fmt.Errorf("x: %w", context.Canceled), results.Cancelled},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), results.Cancelled},
		{fmt.Errorf("x: %w", driver.ErrUnavailable), results.Failed},
	} {
		if got := OutcomeOf(tt.err); got != tt.want {
			t.Errorf("OutcomeOf(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestWorkersStartTogether(t *testing.T) {
	const n = 16
	var running atomic.Int32
	seen := make([]bool, n)
	all := make(chan struct{})
	Workers(n, func(i int) {
		seen[i] = true
		if running.Add(1) == n {
			close(all)
		}
		<-all // only when all run at once does the test end
	})
	for i, ok := range seen {
		if !ok {
			t.Errorf("worker %d did not run", i)
		}
	}
}

var errBad = errors.New("bad")

// scripted returns what it is told to.
type scripted struct{ acquire, renew, release error }

func (s scripted) Acquire(context.Context) (Lease, error) {
	if s.acquire != nil {
		return nil, s.acquire
	}
	return s, nil
}
func (s scripted) Token() uint64                     { return 9 }
func (s scripted) Renew(context.Context) error       { return s.renew }
func (s scripted) Release(ctx context.Context) error { return s.release }

func TestCallerRecords(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name    string
		ctx     context.Context
		lock    scripted
		outcome results.Outcome
		end     results.End
		err     error
	}{
		{"all well", t.Context(), scripted{}, results.Granted, results.EndReleased, nil},
		{"refused", t.Context(), scripted{acquire: errBad}, results.Failed, results.EndOpen, errBad},
		{"release fails", t.Context(), scripted{release: errBad}, results.Granted, results.EndReleaseFailed, errBad},
		{"the caller gave up, and the library names no ctx", ended, scripted{acquire: errBad}, results.Cancelled, results.EndOpen, nil},
		{"the caller gave up", ended, scripted{acquire: context.Canceled}, results.Cancelled, results.EndOpen, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &Caller{Client: 3, Name: 4, Clock: NewClock(), Lock: tt.lock}
			lease, ok := c.Acquire(tt.ctx)
			if ok != (tt.lock.acquire == nil) {
				t.Errorf("ok = %v", ok)
			}
			if ok {
				c.Release(tt.ctx, lease)
			}
			a := c.Attempts[0]
			if a.Outcome != tt.outcome || a.End != tt.end || a.Client != 3 || a.Name != 4 || a.Answered < a.Asked {
				t.Errorf("%+v", a)
			}
			if a.Outcome == results.Granted && (a.Token != 9 || a.Ended < a.Answered || a.Done < a.Ended) {
				t.Errorf("%+v", a)
			}
			if !errors.Is(c.Err, tt.err) {
				t.Errorf("Err = %v, want %v", c.Err, tt.err)
			}
		})
	}
}
