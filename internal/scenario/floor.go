package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/record"
)

// FloorName is the scenario name under which floors are recorded.
const FloorName = "floor"

// ErrFloor: the call of a floor failed.
var ErrFloor = errors.New("the call failed")

// Floor measures a call that does nothing useful, in a closed loop: the least
// that an operation can cost on the same path.
func Floor(ctx context.Context, clock load.Clock, clients int, warmUp, measure time.Duration, call func(context.Context) error) (record.Cell, error) {
	bounded, cancel := context.WithTimeout(ctx, warmUp+measure+graceOf(measure))
	defer cancel()
	from := clock.Now() + int64(warmUp)
	until := from + int64(measure)
	took := make([][]int64, clients)
	errs := make([]error, clients)
	ends := make([]int64, clients)
	load.Workers(clients, func(i int) {
		for bounded.Err() == nil {
			asked := clock.Now()
			if asked >= until && len(took[i]) > 0 {
				return
			}
			if err := call(bounded); err != nil {
				errs[i] = err
				return
			}
			if ends[i] = clock.Now(); asked >= from {
				took[i] = append(took[i], ends[i]-asked)
			}
		}
	})
	cell := record.Cell{Elapsed: time.Duration(max(slices.Max(ends), until) - from), Latencies: map[string][]int64{}}
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
