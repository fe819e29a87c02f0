package load

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/proc"
)

var errBad = errors.New("bad")

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
			c := &Caller{Client: 3, Name: 4, Clock: proc.NewClock(), Lock: tt.lock}
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

func TestPoisson(t *testing.T) {
	plan := func(seed uint64) []Arrival {
		return Poisson(rand.New(rand.NewPCG(seed, 0)), 1000, 4, int64(time.Second), int64(101*time.Second))
	}
	all := plan(1)
	if n := float64(len(all)); math.Abs(n-100_000) > 5*math.Sqrt(100_000) {
		t.Errorf("%v arrivals at 1000 a second in 100 s", n)
	}
	if !slices.Equal(all, plan(1)) || slices.Equal(all, plan(2)) {
		t.Error("the plan does not depend on the seed alone")
	}
	if got := Poisson(rand.New(rand.NewPCG(1, 0)), 0, 1, 0, int64(time.Hour)); got != nil {
		t.Errorf("%d arrivals at rate 0", len(got))
	}
}
