package safety

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/recorder"
	"github.com/lockbench/lockbench/internal/store"
)

// restBetween is the pause between two faults, in which pools report what they
// have lost.
const restBetween = 2 * time.Second

// Soak lets hosts live long while one fault after the other is injected. On
// each backend, all at the same time, two hosts go through the rounds of this
// package, and a third one keeps a pool of leases with a TTL of 10 s, of
// which it always gives some back to take them again.
type Soak struct {
	Backends []Backend
	// Length is for how long it goes on, to begin with the first start. On each
	// backend there is at least one fault.
	Length time.Duration
	// Seed decides which faults are injected, in which order, and at which moments of
	// a renewal.
	Seed uint64
	// PoolSize is how many leases are kept on each backend.
	PoolSize int
	// Log is told how it goes on, from any goroutine.
	Log func(format string, args ...any)
}

// Soaked is what was found on one backend.
type Soaked struct {
	Backend string
	// Err is why it ended early.
	Err    error
	Rounds int
	Grants int // judged, those of the pool among them
	// Violations are the rules that were broken without documentation, and who
	// broke them. Bad are the rounds in which that was.
	Violations []string
	Bad        []record.Round
	// FalseLosses say how many leases with a TTL of 10 s were lost, and when,
	// although no fault explains it: of the hosts of the rounds and of the pool.
	FalseLosses []string
	// ShortLosses are those with a TTL of 2 s, which a busy machine may explain.
	ShortLosses int
	// Usages are those of the processes, in the order of their starts.
	Usages []*Usage
}

// Run soaks all backends, and returns what was found in their order.
func (s Soak) Run(ctx context.Context) (found []Soaked, err error) {
	scratch, err := env.NewScratch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	began := proc.Now()
	var beginning sync.Mutex
	systems := make([]*system, len(s.Backends))
	var work sync.WaitGroup
	for i, b := range s.Backends {
		w := &system{
			soak: s, beginning: &beginning, until: time.Now().Add(s.Length), schedule: newSchedule(b.Name, s.Seed),
			checker: check.New(), usages: map[int]*Usage{}, found: Soaked{Backend: b.Name},
		}
		w.cell = &cell{backend: b, ttl: TTL, runner: &runner{
			plan: Plan{FilesOnly: true}, began: began, random: seeded(b.Name, s.Seed, "moments"), dir: scratch.Dir(),
		}}
		systems[i] = w
		work.Go(func() { w.found.Err = w.run(ctx) })
	}
	over := make(chan struct{})
	var progress sync.WaitGroup
	progress.Go(func() { s.progress(systems, over) })
	work.Wait()
	close(over)
	progress.Wait()
	for _, w := range systems {
		found = append(found, w.found)
	}
	return found, ctx.Err()
}

// progressEvery is how often a soak logs how far it is.
const progressEvery = 10 * time.Second

func (s Soak) progress(systems []*system, over chan struct{}) {
	t := time.NewTicker(progressEvery)
	defer t.Stop()
	for began := time.Now(); ; {
		select {
		case <-over:
			return
		case <-t.C:
		}
		line := fmt.Sprintf("%v of about %v:", time.Since(began).Round(time.Second), s.Length)
		for _, w := range systems {
			line += " " + w.status() + ","
		}
		s.Log("%s", line[:len(line)-1])
	}
}

// system is one backend in a soak.
type system struct {
	*cell
	soak      Soak
	beginning *sync.Mutex
	until     time.Time // faults are injected
	schedule  *schedule
	poolHost  *recorder.Process
	checker   *check.Checker
	names     []string // of the pool
	usages    map[int]*Usage

	mu    sync.Mutex
	now   string // what goes on
	found Soaked
}

func (w *system) status() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%s %s (%d)", w.backend.Name, w.now, w.found.Rounds)
}

func (w *system) does(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = what
}

// run begins with a calm round, after which every process has done what it
// does for the first time, and is looked at for the first time. One backend
// begins after the other: to start servers and pools is the hardest work.
func (w *system) run(ctx context.Context) (err error) {
	w.does("waits")
	defer func() {
		w.does("is over")
		if err != nil {
			w.soak.Log("%s ends early: %v", w.backend.Name, err)
		}
	}()
	defer func() { err = errors.Join(err, w.endAll(ctx)) }()
	w.beginning.Lock()
	err = w.steps(ctx, w.open, w.keep, w.calm, w.leave, w.keep)
	w.beginning.Unlock()
	if err == nil {
		err = w.steps(ctx, w.injections, w.leave)
	}
	w.concludePool()
	return err
}

func (w *system) steps(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open starts the servers, and the host of the pool.
func (w *system) open(ctx context.Context) (err error) {
	w.does("starts")
	if w.resources.Dir, err = os.MkdirTemp(w.dir, w.backend.Name+"-"); err != nil {
		return err
	}
	if w.environment, err = store.Of(w.backend.Name).Open(ctx, w.wish()); err != nil {
		return err
	}
	return w.startPool(ctx)
}

// calm is a round without a fault. A host that is alone has none: it would
// wait for itself.
func (w *system) calm(ctx context.Context) error {
	if w.alone() {
		return w.one(ctx, w.schedule.next())
	}
	return w.one(ctx, fault.Fault{Name: "calm", Acts: restBetween})
}

// injections injects one fault after the other.
func (w *system) injections(ctx context.Context) error {
	for {
		if err := w.one(ctx, w.schedule.next()); err != nil || time.Now().After(w.until) {
			return err
		}
	}
}

// endAll ends hosts and servers.
func (w *system) endAll(ctx context.Context) error {
	err := w.end(ctx)
	if w.poolHost != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err = errors.Join(err, w.poolHost.Close(ctx))
	}
	if w.environment != nil {
		err = errors.Join(err, w.environment.Close())
	}
	return err
}

// wish is an environment for all of the faults.
func (w *system) wish() store.Requirements {
	all := store.Requirements{Many: true, TTL: poolTTL, Plugin: w.backend.Path, Dir: w.dir}
	for _, f := range w.schedule.faults {
		all.Needs = append(all.Needs, f.Needs...)
	}
	return all
}

// one goes through one round and judges it.
func (w *system) one(ctx context.Context, f fault.Fault) error {
	w.does(f.Name)
	w.fault, w.ttl = f, TTL
	if f.TTL > 0 {
		w.ttl = f.TTL
	}
	n := w.found.Rounds
	r := record.Round{
		Backend: w.backend.Name, Kind: record.KindPlugin, Fencing: w.backend.Fencing, Fault: f.Name, Conditions: f.Conditions(),
		Round: n + 1, Names: Names, Keeps: f.KeepsLeases && !w.alone(), TTLms: w.ttl.Milliseconds(),
	}
	err := w.ready(ctx, n)
	if err == nil {
		err = w.round(ctx, &r)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		err = w.recover(ctx, f)
	}
	if err != nil {
		r.Failure = err.Error()
	}
	w.judge(r)
	if err != nil {
		return fmt.Errorf("round %d, %s: %w", n+1, f.Name, err)
	}
	if w.alone() {
		return w.look(ctx, "holder", w.holder)
	}
	return errors.Join(w.look(ctx, "holder", w.holder), w.look(ctx, "rival", w.rival))
}

// recover waits until the fault is over for everybody, and removes what was
// written under it.
func (w *system) recover(ctx context.Context, f fault.Fault) error {
	w.does("recovers from " + f.Name)
	proc.Sleep(ctx, restBetween)
	if f.RivalAsksLate { // data were lost, and the node may not vote for a while
		proc.Sleep(ctx, poolTTL)
	}
	if err := w.gather(ctx); err != nil {
		return err
	}
	files, err := os.ReadDir(w.resources.Dir)
	for _, file := range files {
		err = errors.Join(err, os.Remove(filepath.Join(w.resources.Dir, file.Name())))
	}
	return err
}

// judge asks check about one round, and about what became of the pool in it.
func (w *system) judge(r record.Round) {
	c := check.Cells([]record.Round{r})[0]
	lost := w.judgePool(mayLosePool(w.fault))
	w.soak.Log("%s %d: %s: %s, %d grants, %v until the next grant; the pool lost %s", r.Backend, r.Round, r.Fault, c.Class, c.Grants,
		time.Duration(c.Unavailable).Round(time.Millisecond), lost)
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &w.found
	out.Rounds++
	out.Grants += c.Grants
	if c.Class != check.ClassHeld {
		out.Bad = append(out.Bad, r)
		out.Violations = append(out.Violations, fmt.Sprintf("round %d, %s: %s %s", r.Round, r.Fault, c.Class, c.Why))
		out.Violations = append(out.Violations, c.Violations...)
	}
	if w.ttl < poolTTL {
		out.ShortLosses += c.FalseLosses
	} else if c.FalseLosses > 0 {
		out.FalseLosses = append(out.FalseLosses, fmt.Sprintf("%d in round %d, %s", c.FalseLosses, r.Round, r.Fault))
	}
}
