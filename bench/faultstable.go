package bench

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/faults"
	"github.com/lockbench/lockbench/internal/results"
)

// How often each cell of the table is played.
const (
	tableRuns      = 3
	quickTableRuns = 1
)

// table plays the table of faults, and judges what its folder holds.
func (p FaultsPlan) table(ctx context.Context, opts Options) (*Outcome, error) {
	plan := faults.Plan{Faults: p.faults(), Rounds: p.runs(tableRuns, quickTableRuns), Seed: p.Seed}
	if len(plan.Faults) == 0 {
		return nil, p.nothingChosen("fault")
	}
	backends, m, err := p.judged(ctx, false, "safety", plan.Rounds)
	if err != nil {
		return nil, orInterrupted(ctx, err)
	}
	plan.Backends = backends
	sink := &tableSink{progress: opts.Progress, log: opts.Log}
	_, err = fillFolder(ctx, p.Out, m, func(folder *results.Folder, _ *results.Manifest) error {
		sink.folder = folder
		cells, runnable := plan.Cells()
		sink.progress.Begin(cells, time.Duration(runnable)*(tableSetup+time.Duration(plan.Rounds)*tableRound))
		defer sink.progress.End()
		return faults.Run(ctx, plan, sink)
	})
	res := result{dir: p.Out, cells: sink.rounds, interrupted: ctx.Err() != nil}
	if err == nil {
		res.verdict, err = check.Dir(p.Out)
	}
	if err == nil && res.cells == 0 && !res.interrupted {
		err = &EnvError{Err: fmt.Errorf("none of these faults can be run here: %s", strings.Join(sink.missing, "; "))}
	}
	return res.outcome(ctx, err)
}

// About how long one round takes, and the servers of a cell.
const (
	tableRound = 5 * time.Second
	tableSetup = 3 * time.Second
)

// tableSink writes rounds into a folder.
type tableSink struct {
	folder   *results.Folder
	progress Progress
	log      *slog.Logger
	rounds   int // that were run
	missing  []string
}

// Begin implements faults.Sink.
func (s *tableSink) Begin(label string) { s.progress.Step(label) }

// Round implements faults.Sink.
func (s *tableSink) Round(r results.Round) error {
	if r.Missing == "" {
		s.rounds++
	} else {
		s.missing = append(s.missing, fmt.Sprintf("%s under %s: %s", r.Backend, r.Fault, r.Missing))
	}
	if r.Failure != "" {
		s.log.Warn("round failed", "backend", r.Backend, "fault", r.Fault, "round", r.Round, "failure", r.Failure)
	}
	if err := s.folder.AddRound(r); err != nil {
		return fmt.Errorf("record a round: %w", err)
	}
	return nil
}
