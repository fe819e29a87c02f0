package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/results"
)

// ErrFloor: the call of a floor failed.
var ErrFloor = errors.New("the call failed")

// Floor measures a call that does nothing useful, in a closed loop: the least
// that an operation can cost on the same path. It has the loads of acquire.
func Floor(call func(context.Context) error) Scenario {
	return Scenario{
		Name:      "floor",
		Workloads: acquireWorkloads,
		Takes:     func(in Input) time.Duration { return in.WarmUp + in.Measure },
		Run:       func(ctx context.Context, in Input) (results.Cell, error) { return runFloor(ctx, in, call) },
	}
}

func runFloor(ctx context.Context, in Input, call func(context.Context) error) (results.Cell, error) {
	bounded, cancel := context.WithTimeout(ctx, in.WarmUp+in.Measure+graceOf(in.Measure))
	defer cancel()
	from := in.Clock.Now() + int64(in.WarmUp)
	until := from + int64(in.Measure)
	took := make([][]int64, in.Clients)
	errs := make([]error, in.Clients)
	ends := make([]int64, in.Clients)
	load.Workers(in.Clients, func(i int) {
		for bounded.Err() == nil {
			asked := in.Clock.Now()
			if asked >= until && len(took[i]) > 0 {
				return
			}
			if err := call(bounded); err != nil {
				errs[i] = err
				return
			}
			if ends[i] = in.Clock.Now(); asked >= from {
				took[i] = append(took[i], ends[i]-asked)
			}
		}
	})
	cell := results.Cell{Elapsed: time.Duration(max(slices.Max(ends), until) - from), Latencies: map[string][]int64{}}
	for i, t := range took {
		if errs[i] != nil && ctx.Err() == nil {
			return cell, fmt.Errorf("%w: %w", ErrFloor, errs[i])
		}
		cell.Cycles += len(t)
		cell.Latencies["call"] = append(cell.Latencies["call"], t...)
	}
	cell.Values = map[string]float64{"calls/s": float64(cell.Cycles) / cell.Elapsed.Seconds()}
	longest(&cell, "call")
	return cell, ctx.Err()
}
