package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// Backend describes a backend that is judged.
type Backend struct {
	Name      string
	Path      string // path of the plugin binary
	Fencing   string
	FirstSpan time.Duration
	Config    driver.Config
	// Claims, if not nil, are promises of the backend's author. They replace those in package claim.
	Claims *claim.Terms
	NoMTLS bool
	// HostProgram is the path of the program to run as a host, for example a build with another
	// version of core. Its main must call [host.Main]. If HostProgram is "", hosts run this program.
	HostProgram string
}

// Described makes a Backend from the description d of a plugin and the path of its binary.
func Described(path string, d plugin.Description) Backend {
	span, _ := time.ParseDuration(d.Properties.FirstSpan) // an older plugin has "", which counts as zero
	return Backend{Name: d.Name, Path: path, Fencing: string(d.Properties.Fencing), FirstSpan: span}
}

type Options struct {
	// Length is the time in which new schedules begin. A schedule that has begun is still finished.
	Length time.Duration
	Seed   uint64
	// Actions are the names of the actions that may happen. If Actions is empty, all may happen.
	Actions []string
	// Settings are the names of the store's settings to be used. If Settings is empty, all are used.
	Settings []string
	// If Pool is not 0, the search is a soak. A soak keeps its servers and hosts from one schedule to
	// the next, except hosts that an action ends. The last host has Pool additional callers, and each
	// of these holds a lock for a long time. A soak does not shrink schedules that break a claim.
	Pool int
	// KeepGoing makes the search go on after a violation. Without KeepGoing, the search ends with the
	// first reproducer that breaks its rule again when it is played.
	KeepGoing bool
	// Players is the number of schedules that are played at once, each on its own servers. A number
	// above 1 saves time, because the hosts of a schedule mostly wait. The default is 2.
	Players int
	// Shrink is the time limit for shrinking a schedule that breaks a claim. The default is 5 minutes.
	Shrink time.Duration
	// Runs is the number of times that a finished reproducer is played, to count in how many plays it
	// breaks its rule. The default is 10.
	Runs int
	// Log is called for each finding, and Progress after each schedule. Their calls do not overlap.
	Log, Progress func(format string, args ...any)
}

func (o *Options) fill() {
	o.Players = cmp.Or(o.Players, 2)
	o.Shrink = cmp.Or(o.Shrink, 5*time.Minute)
	o.Runs = cmp.Or(o.Runs, 10)
	for _, tell := range []*func(string, ...any){&o.Log, &o.Progress} {
		if *tell == nil {
			*tell = func(string, ...any) {}
		}
	}
}

// Found is the result of a search on one backend.
type Found struct {
	Backend   string `json:"backend"`
	Schedules int    `json:"schedules"`
	Grants    int    `json:"grants"`
	// Actions is the number of actions that happened.
	Actions int `json:"actions"`
	// Starved counts the schedules during which the machine was too busy to judge time limits.
	// Unjudged counts those starved schedules in which a claim with a time limit seemed broken.
	Unjudged int `json:"unjudged"`
	Starved  int `json:"starved"`
	// Exempt counts violations that the documentation allows. Again is the number of violations that
	// get no reproducer of their own, mostly because an earlier reproducer explains them.
	Exempt int `json:"exempt"`
	Again  int `json:"again"`
	// Failed counts the schedules that could not be played. Failure is the error of the last such
	// schedule.
	Failed      int          `json:"failed"`
	Failure     string       `json:"failure,omitempty"`
	Covered     *Coverage    `json:"covered"`
	Reproducers []Reproducer `json:"reproducers"`
	// Uses has the use of resources by each process of a soak, in the order of the first readings.
	// Left lists what hosts left behind, and processes whose use of a resource has grown too much.
	Uses []*Usage `json:"uses,omitempty"`
	Left []string `json:"left,omitempty"`
}

// Search plays random schedules on the backend b. If ctx ends, the search ends without an error.
func Search(ctx context.Context, b Backend, o Options) (found Found, err error) {
	found.Backend, found.Covered = b.Name, &Coverage{}
	if !kinds.Of(b.Name).Known() {
		return found, errors.New(NoServers(b.Name))
	}
	actions := Actions()
	if len(o.Actions) > 0 {
		actions = Chosen(o.Actions)
	}
	o.fill()
	settings := o.Settings
	if o.Pool > 0 {
		settings, actions = kinds.Of(b.Name).SettingNames()[:1], soakable(actions)
	}
	g := newGenerator(b.Name, o.Seed, settings, actions)
	if g.pool = o.Pool; len(g.picker.settings) == 0 {
		return found, fmt.Errorf("%s: %w", b.Name, ErrUnfit)
	}
	all, err := newPlayers(b, o.Players)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	all.soak = o.Pool > 0
	x := &searcher{players: all, opts: o, generator: g, until: time.Now().Add(o.Length), found: &found, shrinking: map[claim.Rule]bool{}}
	x.kept = sync.NewCond(&x.mu)
	found.Covered = newCoverage(g.picker)
	var playing sync.WaitGroup
	for range cap(x.idle) {
		playing.Go(func() {
			for s, more := x.next(ctx); more; s, more = x.next(ctx) {
				x.one(ctx, s)
			}
		})
	}
	playing.Wait()
	if x.soak {
		x.finish()
	}
	return found, x.failure
}

var ErrUnfit = errors.New("none of these actions can happen there")

// A search gives up when failuresInRow schedules in a row could not be played.
const failuresInRow = 5

func Chosen(names []string) []Action {
	return slices.DeleteFunc(Actions(), func(a Action) bool { return !slices.Contains(names, a.Name) })
}

// searcher is one search on one backend. The mutex players.mu guards all fields that change.
type searcher struct {
	*players
	opts      Options
	generator *generator
	until     time.Time
	found     *Found
	failures  int // unplayable schedules in a row
	failure   error
	shrinking map[claim.Rule]bool // rules for which a reproducer is being made
	kept      *sync.Cond          // signals that a reproducer was made
}

// next() returns the next schedule, or false if the search plays no more schedules. Without
// KeepGoing, it first waits until no player is making a reproducer.
func (x *searcher) next(ctx context.Context) (Schedule, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for !x.opts.KeepGoing && len(x.shrinking) > 0 {
		x.kept.Wait()
	}
	if time.Now().After(x.until) || ctx.Err() != nil || x.failure != nil || x.satisfied() {
		return Schedule{}, false
	}
	return x.generator.next(), true
}

// satisfied reports whether a search without KeepGoing needs no other schedule. This is so if a
// reproducer is being made, or has broken its rule when it was played again.
func (x *searcher) satisfied() bool {
	shown := slices.ContainsFunc(x.found.Reproducers, func(s Reproducer) bool { return s.Shown > 0 })
	return !x.opts.KeepGoing && (shown || len(x.shrinking) > 0)
}

// one(ctx, s) plays the schedule s, and makes a reproducer if the play shows a new violation.
func (x *searcher) one(ctx context.Context, s Schedule) {
	h, err := x.play(ctx, s)
	if err != nil {
		if ctx.Err() == nil {
			x.unplayable(err)
		}
		return
	}
	switch violation, fresh := x.tally(h, h.judge(x.backend)); {
	case fresh && x.soak:
		x.keep(Reproducer{Schedule: s, Rule: violation.Rule, What: violation.What, Shown: 1, Runs: 1})
	case fresh:
		x.keep(x.shrink(ctx, s, violation))
	}
}

func (x *searcher) unplayable(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.found.Failed++
	x.found.Failure = err.Error()
	x.opts.Log("%s: a schedule could not be played: %v", x.backend.Name, err)
	switch x.failures++; {
	case errors.Is(err, servers.ErrNotInstalled):
		x.failure = err
	case x.failures == failuresInRow:
		x.failure = fmt.Errorf("faults: %d schedules in a row cannot be played on %s: %w", failuresInRow, x.backend.Name, err)
	}
}

// tally adds the judgement v of a played schedule to the findings, and logs it. If a violation
// needs a new reproducer, tally returns this violation with fresh=true, and the caller must make
// that reproducer. Until then, no other player makes a reproducer for the same rule.
func (x *searcher) tally(h *History, v check.Judgement) (violation check.Violation, fresh bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.found
	x.failures = 0
	f.Schedules++
	f.Grants += v.Grants
	f.Exempt += len(v.Exempt)
	if v.Starved {
		f.Starved++
	}
	if v.Unjudged {
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
	for _, one := range v.Violations {
		switch {
		case x.explained(h.Schedule, one) || fresh || x.satisfied():
			f.Again++
			text += fmt.Sprintf(", again %q", one.Rule)
		default:
			violation, fresh = one, true
		}
	}
	f.Covered.add(h)
	x.opts.Progress("%s %d: %d hosts, %d grants,%s; %s", x.backend.Name, f.Schedules, len(h.Schedule.Hosts), v.Grants, text, f.Covered.Line())
	if fresh {
		x.shrinking[violation.Rule] = true
		x.opts.Log("%s: schedule %d: %s: %s", x.backend.Name, f.Schedules, violation.Rule, violation.What)
	}
	return violation, fresh
}

// explained reports whether a reproducer that exists or is being made explains the violation v.
func (x *searcher) explained(s Schedule, v check.Violation) bool {
	return x.shrinking[v.Rule] || slices.ContainsFunc(x.found.Reproducers, func(known Reproducer) bool { return known.explains(s, v) })
}

// keep adds a reproducer to the findings, unless another reproducer explains its violation.
func (x *searcher) keep(reproducer Reproducer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.shrinking, reproducer.Rule)
	x.kept.Broadcast()
	if !x.explained(reproducer.Schedule, check.Violation{Rule: reproducer.Rule, What: reproducer.What}) {
		x.found.Reproducers = append(x.found.Reproducers, reproducer)
		x.opts.Log("%s", reproducer.Text())
	}
}

func (x *searcher) log(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.opts.Log(format, args...)
}
