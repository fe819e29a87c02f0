package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/lockbench/lockbench/internal/explore"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/store"
)

// ExploreScenario searches for faults that nobody has listed. It has servers and
// a verdict of its own, so it is run alone.
const ExploreScenario = "explore"

// ExploreDoc is what it proves, in one line.
const ExploreDoc = "whether the claims of docs/safety.md hold under faults that nobody has listed: schedules of hosts and actions, made from a seed; run alone, on throwaway servers"

// Exploration is what [Explore] does.
type Exploration struct {
	// Plan says on which backends, by which seed, and into which folder.
	Plan Plan
	// For is how long it takes, shared equally by the backends.
	For time.Duration
	// Actions are those that may happen; none means all.
	Actions []string
	// KeepGoing looks for more after the first reproducer of a backend.
	KeepGoing bool
	// Recorder is another program for the hosts, see [explore.Options].
	Recorder string
	// Log is told what is found, and Progress of each schedule.
	Log, Progress func(format string, args ...any)
}

// Check finds what cannot be explored. Its errors are [*UsageError]s.
func (x Exploration) Check() error {
	if err := x.Plan.checkAlone(ExploreScenario); err != nil {
		return err
	}
	if x.For < time.Second || x.For > 7*24*time.Hour {
		return usagef("an exploration of %v is not between 1s and a week", x.For)
	}
	if _, err := explore.Chosen(x.Actions); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// Explore explores the backends of a plan one after the other, and writes what
// it finds to the plan's folder: a reproducer file for each broken claim. When ctx
// ends it returns what it has.
func Explore(ctx context.Context, x Exploration) (found []explore.Found, err error) {
	if err := x.Check(); err != nil {
		return nil, err
	}
	if err := record.Vacant(x.Plan.Out); err != nil {
		return nil, err
	}
	backends, m, err := x.Plan.explored(ctx)
	if err != nil {
		return nil, err
	}
	if x.Log != nil {
		x.Log("exploring with --seed %d for %v; what is found comes into %s", x.Plan.Seed, x.For, x.Plan.Out)
	}
	m, err = fillFolder(ctx, x.Plan.Out, m, func(*record.Folder) (err error) {
		for _, b := range backends {
			var one explore.Found
			one, err = explore.Explore(ctx, b, explore.Options{
				Length: x.For / time.Duration(len(backends)), Seed: x.Plan.Seed, Actions: x.Actions, Recorder: x.Recorder, KeepGoing: x.KeepGoing, Log: x.Log, Progress: x.Progress,
			})
			found = append(found, one)
			for i, s := range one.Reproducers {
				err = errors.Join(err, s.WriteFile(filepath.Join(x.Plan.Out, fmt.Sprintf("reproducer-%s-%d.json", b.Name, i+1))))
			}
			if err != nil || ctx.Err() != nil {
				break
			}
		}
		return err
	})
	for _, line := range m.Busy() {
		if x.Log != nil {
			x.Log("%s", line)
		}
	}
	return found, err
}

// PlayReproducer plays a reproducer of a file on the plugin that is found for it.
func PlayReproducer(ctx context.Context, path string, p Plan, recorder string, runs int) (explore.Reproducer, explore.Played, error) {
	reproducer, err := explore.ReadReproducer(path)
	if err != nil {
		return reproducer, explore.Played{}, usagef("%v", err)
	}
	p.Backends = []string{reproducer.Schedule.Backend}
	backends, _, err := p.explored(ctx)
	if err != nil {
		return reproducer, explore.Played{}, err
	}
	played, err := explore.Play(ctx, reproducer, backends[0], explore.Options{Recorder: recorder}, runs)
	return reproducer, played, err
}

// explored describes an exploration: of the backends for which there are
// servers.
func (p Plan) explored(ctx context.Context) (backends []explore.Backend, m record.Manifest, err error) {
	for _, name := range p.Backends {
		if !store.Known(name) {
			return nil, m, usagef("lockbench has no throwaway servers for %s", name)
		}
	}
	backends, m, err = p.judged(ctx, store.Known)
	if err == nil && len(backends) == 0 {
		err = usagef("lockbench has no throwaway servers for any of these backends")
	}
	return backends, m, err
}
