package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/bench/fault"
	"github.com/lockbench/lockbench/bench/store"
	"github.com/lockbench/lockbench/core/driver"
)

// Backend is one that is explored.
type Backend struct {
	Name    string
	Path    string // of the plugin binary
	Fencing string
	Config  driver.Config
	NoMTLS  bool
}

// Options of an exploration.
type Options struct {
	// Length is for how long new schedules are begun on each backend; zero means
	// until Schedules have been played.
	Length    time.Duration
	Schedules int
	Seed      uint64
	// Actions are the names of those that may happen; none means all.
	Actions []string
	// Settings are those of the store that are taken; none means all.
	Settings []string
	// Recorder is another program for the hosts, whose main must call
	// [witness.Main]: one that was built with another version of core. "" means
	// this one.
	Recorder string
	// KeepGoing goes on after a violation; otherwise the backend's exploration
	// ends with the first scene.
	KeepGoing bool
	// Shrink bounds the time for making a scene small. Default 5 minutes.
	Shrink time.Duration
	// Runs is how often a scene is played at the end to say how often it shows.
	// Default 10.
	Runs int
	// Log is told what is found, and Progress of each schedule, both from one
	// goroutine.
	Log, Progress func(format string, args ...any)

	clockLibrary string
}

// Found is what an exploration of one backend has found.
type Found struct {
	Backend   string
	Schedules int
	Grants    int
	// Actions are how many took place.
	Actions int
	// Unjudged are the schedules in which a claim that has a time seemed broken
	// while the machine was starved, and Starved those in which it was.
	Unjudged, Starved int
	// Exempt are the violations that are written down.
	Exempt int
	// Failed are the schedules that could not be played, with the last reason.
	Failed  int
	Failure string
	Covered Coverage
	Scenes  []Scene
}

// Unsafe reports whether a claim was broken.
func (f Found) Unsafe() bool { return len(f.Scenes) > 0 }

// Explore plays schedules on one backend. It ends early with ctx, whose end is
// no error.
func Explore(ctx context.Context, b Backend, o Options) (found Found, err error) {
	found.Backend = b.Name
	if !store.Known(b.Name) {
		return found, fmt.Errorf("explore: lockbench has no throwaway servers for %s", b.Name)
	}
	actions, err := Chosen(o.Actions)
	if err != nil {
		return found, err
	}
	x, err := newExplorer(ctx, b, o)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	g := newGenerator(b.Name, o.Seed, o.Settings, actions)
	found.Covered = newCoverage(g.deck)
	x.found = &found
	failures := 0
	for until := time.Now().Add(o.Length); ctx.Err() == nil; {
		if o.Length > 0 && time.Now().After(until) || o.Length == 0 && found.Schedules >= o.Schedules {
			break
		}
		if x.one(ctx, g.next()) {
			failures = 0
		} else if failures++; failures == failuresInRow && ctx.Err() == nil {
			return found, fmt.Errorf("explore: %d schedules in a row cannot be played on %s: %s", failures, b.Name, found.Failure)
		}
		if len(found.Scenes) > 0 && !o.KeepGoing {
			break
		}
	}
	return found, nil
}

// failuresInRow is after how many schedules that cannot be played an
// exploration ends.
const failuresInRow = 5

// Chosen are the actions of these names; of none, all.
func Chosen(names []string) ([]Action, error) {
	all := Actions()
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if !slices.Contains(ActionNames(), name) {
			return nil, fmt.Errorf("there is no action %q%s", name, driver.Suggest(name, ActionNames()))
		}
	}
	return slices.DeleteFunc(all, func(a Action) bool { return !slices.Contains(names, a.Name) }), nil
}

// explorer explores one backend.
type explorer struct {
	opts    Options
	backend Backend
	scratch *env.Scratch
	player  *player
	found   *Found
	known   map[string]bool // violations that have a scene
}

func newExplorer(ctx context.Context, b Backend, o Options) (*explorer, error) {
	scratch, err := env.NewScratch()
	if err != nil {
		return nil, err
	}
	if o.Shrink == 0 {
		o.Shrink = 5 * time.Minute
	}
	if o.Runs == 0 {
		o.Runs = 10
	}
	for _, tell := range []*func(string, ...any){&o.Log, &o.Progress} {
		if *tell == nil {
			*tell = func(string, ...any) {}
		}
	}
	x := &explorer{opts: o, backend: b, scratch: scratch, known: map[string]bool{}}
	if store.Lacks(b.Name)[fault.PowerClock] == "" {
		if x.opts.clockLibrary, err = fault.ClockLibrary(ctx, scratch.Dir()); err != nil {
			return nil, errors.Join(err, scratch.Close())
		}
	}
	x.player = &player{opts: &x.opts, backend: b, dir: scratch.Dir()}
	return x, nil
}

func (x *explorer) close() error {
	x.player.close()
	return x.scratch.Close()
}

// one plays one schedule, and makes a scene of a violation. It returns false
// when the schedule could not be played.
func (x *explorer) one(ctx context.Context, s Schedule) bool {
	h, err := x.player.play(ctx, s)
	if err != nil {
		if ctx.Err() == nil {
			x.found.Failed++
			x.found.Failure = err.Error()
			x.opts.Log("%s: a schedule could not be played: %v", x.backend.Name, err)
			x.player.close() // the servers may be the reason
		}
		return false
	}
	v := judgeOf(h, x.backend)
	x.count(h, v)
	if len(v.violations) == 0 {
		return true
	}
	first := v.violations[0]
	x.opts.Log("%s: schedule %d: %s: %s", x.backend.Name, x.found.Schedules, first.Rule, first.What)
	scene := x.shrink(ctx, s, first)
	if !x.known[scene.key()] {
		x.known[scene.key()] = true
		x.found.Scenes = append(x.found.Scenes, scene)
		x.opts.Log("%s", scene.Text())
	}
	return true
}

// count adds a schedule to what was found, and tells of it.
func (x *explorer) count(h *History, v verdict) {
	f := x.found
	f.Schedules++
	f.Grants += v.grants
	f.Exempt += len(v.exempt)
	if v.starved {
		f.Starved++
	}
	if v.unjudged {
		f.Unjudged++
	}
	text := ""
	for _, m := range h.Marks {
		if m.From > 0 {
			f.Actions++
		}
		text += " " + m.Action
		if m.Failed != "" {
			text += fmt.Sprintf(" (%s)", m.Failed)
		}
	}
	f.Covered.add(h)
	x.opts.Progress("%s %d: %d hosts, %d grants,%s; %s", x.backend.Name, f.Schedules, len(h.Schedule.Hosts), v.grants, text, f.Covered.Line())
}
