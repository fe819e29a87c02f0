package faults

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/host"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

// Stage is where the schedules of one fault of the table are played, one after the
// other, in an environment that it owns. What they leave is not looked at.
type Stage struct {
	config    driver.Config // further one of the backend
	resources host.Resources
	player    *player
}

// NewStage makes one for a backend.
func NewStage(b Backend, e *servers.Environment, config driver.Config, resources host.Resources) (*Stage, error) {
	x, err := newExplorer(b, Options{Players: 1})
	if err != nil {
		return nil, err
	}
	s := &Stage{config, resources, <-x.idle}
	s.player.stage, s.player.environment = s, e
	return s, nil
}

// Play plays a schedule. Beside an error it returns what was seen until then, nil
// for nothing.
func (s *Stage) Play(ctx context.Context, schedule Schedule) (*History, error) {
	return s.player.play(ctx, schedule)
}

// Close ends the servers.
func (s *Stage) Close() error {
	s.player.idle <- s.player
	return s.player.explorer.close()
}

// The actions that only schedules of the table have, beside those that
// [ActionOf] and [PrepareOf] name.
const (
	Ask      = "ask"
	GiveBack = "give-back"
)

// ActionOf is the name of the action that a fault of the table is: of one that
// injects nothing itself, its own.
func ActionOf(f Fault) string {
	if f.Inject == nil {
		return f.Name
	}
	return "fault " + f.Name
}

// PrepareOf is the name of the action that prepares it.
func PrepareOf(f Fault) string { return "prepare " + f.Name }

// tableActions are known, and not drawn.
var tableActions = func() []Action {
	all := []Action{
		{Name: Ask, Does: "%s asks for its locks", On: OnHost, Inject: ofHost((*System).ask)},
		{Name: GiveBack, Does: "%s gives its locks back", On: OnHost, Inject: ofHost((*System).giveBack)},
	}
	for _, f := range All() {
		all = append(all,
			Action{Name: ActionOf(f), Does: f.Does, On: OnStore, Inject: step(f.Inject), Heal: step(f.Heal)},
			Action{Name: PrepareOf(f), Does: "what comes is prepared", On: OnStore, Inject: step(f.Prepare)})
	}
	return all
}()

// step is one of a fault, which may be nil.
func step(do func(context.Context, *Setup) error) func(context.Context, *System, Event) error {
	return func(ctx context.Context, w *System, _ Event) error {
		if do == nil {
			return nil
		}
		return do(ctx, w.Environment)
	}
}

// ask has a host ask for every lock of the groups that ask once.
func (w *System) ask(h *Host, e Event) error {
	first, count := w.history.once(e.Group)
	h.askedAt.Store(proc.Now())
	h.asked.Store(int64(count))
	return h.Acquire(w.history.prefix, first, count, time.Duration(w.history.Schedule.Groups[max(0, e.Group-1)].TTL), time.Duration(e.Limit))
}

func (w *System) giveBack(h *Host, e Event) error {
	ctx, cancel := context.WithTimeout(context.Background(), healTimeout)
	defer cancel()
	first, _ := w.history.once(e.Group)
	return h.ReleaseFrom(ctx, first)
}
