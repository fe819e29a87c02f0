package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

const (
	// startTimeout is the time limit for starting a host while other hosts start too.
	startTimeout = 30 * time.Second
	// warmUp is the time in which callers work before the first event, so that the store has served
	// each client when this event happens.
	warmUp = 400 * time.Millisecond
	// endTimeout is the time limit for the release of all locks at the end of a schedule.
	endTimeout = 10 * time.Second
	// exitTimeout is the time limit for the end of a host. A host that exceeds it counts as hanging.
	// With 40 runnable threads per processor, a host has needed more than 10 s to end.
	exitTimeout = 30 * time.Second
	// An event must be injected and healed within its Lasts plus healTimeout.
	healTimeout = 30 * time.Second
)

// players is a group of players for schedules on one backend. Each player has its own servers.
type players struct {
	backend Backend
	scratch *servers.Scratch
	idle    chan *player
	needs   []servers.Capability // the capabilities that the servers must have
	ttl     time.Duration        // the longest TTL of a schedule
	// files is the directory that hosts write to in the table of faults, and "" in a search. If files
	// is not "", players do not look for leftovers in the store.
	files string
	soak  bool // hosts keep running from one schedule to the next

	mu   sync.Mutex
	uses []*Usage // the resources that the processes of a soak use
}

// newPlayers makes as many players as count says. The caller must close them.
func newPlayers(b Backend, count int) (*players, error) {
	scratch, err := servers.NewScratch()
	if err != nil {
		return nil, err
	}
	all := &players{
		backend: b, scratch: scratch, idle: make(chan *player, count), ttl: maxTTL,
		needs: []servers.Capability{servers.CapKeeps, servers.CapClock},
	}
	for n := range count {
		p := &player{players: all, dir: filepath.Join(scratch.Dir(), fmt.Sprint(n))}
		if err := os.Mkdir(p.dir, 0o700); err != nil {
			return nil, errors.Join(err, scratch.Close())
		}
		all.idle <- p
	}
	return all, nil
}

// close waits until each player is idle, and then ends the servers of this player.
func (all *players) close() error {
	for range cap(all.idle) {
		(<-all.idle).close()
	}
	return all.scratch.Close()
}

func (all *players) play(ctx context.Context, s Schedule) (*History, error) {
	select {
	case p := <-all.idle:
		defer func() { all.idle <- p }()
		h, err := p.play(ctx, s)
		if err != nil && ctx.Err() == nil {
			p.close() // the servers may be the cause of the error
		}
		return h, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// player plays schedules, one after the other. It keeps its servers for the next schedule, unless
// the servers have failed or the next schedule needs another setting of the store.
type player struct {
	*players
	dir         string
	environment *servers.Environment
	setting     string
	plays       int
	hosts       []*Host // the hosts of a soak, kept for the next schedule
}

// play plays the schedule s. It returns an error if s cannot be played. A broken claim is no error.
func (p *player) play(ctx context.Context, s Schedule) (h *History, err error) {
	if err := p.ready(ctx, s.Setting); err != nil {
		return nil, err
	}
	p.plays++
	w := &System{Environment: p.environment, Dir: filepath.Join(p.scratch.Dir(), fmt.Sprintf("play-%s-%d", filepath.Base(p.dir), p.plays))}
	if err := os.Mkdir(w.Dir, 0o700); err != nil {
		return nil, err
	}
	h = &History{Schedule: s, prefix: fmt.Sprintf("faults-%d-%s-%d-", os.Getpid(), filepath.Base(p.dir), p.plays)}
	defer func() {
		err = errors.Join(err, w.EndBackground())
		if p.hosts = w.Hosts; !p.soak || err != nil {
			p.end()
		}
		err = errors.Join(err, p.heal(), os.RemoveAll(w.Dir))
	}()
	w.history = h
	if err := p.start(ctx, w, s); err != nil {
		return nil, err
	}
	watch := watchTriggers(w)
	defer watch.close()
	defer observe(w, h)()
	if err := p.begin(ctx, w, h); err != nil {
		return nil, err
	}
	err = p.happen(ctx, w, h, watch)
	if err != nil && p.files == "" {
		return nil, err
	}
	if err := p.teardown(ctx, w, h); err != nil {
		return nil, err
	}
	return h, errors.Join(err, ctx.Err())
}

// begin starts the callers of all hosts. Then it waits for warmUp, except in the table of faults.
func (p *player) begin(ctx context.Context, w *System, h *History) error {
	for _, of := range w.Hosts {
		for i, g := range h.Schedule.Groups {
			w := h.workload(i)
			w.Seed = h.Schedule.Seed + uint64(of.Number<<8+i)
			if !g.Once {
				w.Callers = h.Schedule.Hosts[of.Number].Callers[i]
			}
			if err := of.Work(w); err != nil {
				return err
			}
		}
	}
	h.Began = proc.Now()
	if p.files == "" {
		proc.Sleep(ctx, warmUp)
	}
	return nil
}

// happen carries out every event. It returns when all events are healed and the callers have worked
// for at least the length of the schedule. It returns an error if an event cannot be healed,
// because the hosts cannot be judged then.
func (p *player) happen(ctx context.Context, w *System, h *History, watch *watcher) error {
	began := time.Now()
	h.Marks = make([]Mark, len(h.Schedule.Events))
	errs := make([]error, len(h.Schedule.Events))
	var going sync.WaitGroup
	uses := map[resourceKey]*Mark{} // the latest event that uses each resource
	for i, e := range h.Schedule.Events {
		h.Marks[i] = Mark{Event: e, moments: newMoments()}
	}
	for i, e := range h.Schedule.Events {
		m := &h.Marks[i]
		var before *Mark
		if key, _, ok := resourceKeyOf(e); ok {
			before, uses[key] = uses[key], m
		}
		going.Go(func() {
			errs[i] = befall(ctx, w, m, watch, began, before)
			for _, one := range m.moments {
				one.pass()
			}
		})
	}
	going.Wait()
	proc.Sleep(ctx, max(time.Until(began.Add(time.Duration(h.Schedule.Length))), warmUp))
	return errors.Join(errs...)
}

// befall carries out the event of m when it is due. The parameter before, if not nil, is an earlier
// event that uses the same resource. Then befall first waits until that event is healed.
func befall(ctx context.Context, w *System, m *Mark, watch *watcher, began time.Time, before *Mark) error {
	a := m.action()
	if m.After > 0 {
		<-w.history.Marks[m.After-1].moments[cmp.Or(m.Since, Injected)].come
		began = time.Now()
	}
	if !proc.Sleep(ctx, time.Until(began.Add(time.Duration(m.At)))) {
		return nil
	}
	if before != nil {
		<-before.moments[Healed].come
	}
	happened := func() {}
	if m.Trigger != "" {
		m.Met, happened = watch.await(ctx, m.Of, m.Trigger)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(m.Lasts)+healTimeout)
	defer cancel()
	m.From = proc.Now()
	m.moments[Begun].pass()
	if err := a.Inject(bounded, w, m.Event); err != nil {
		m.Failed = err.Error()
	}
	heal := func() (err error) {
		if a.Heal != nil {
			err = a.Heal(bounded, w, m.Event)
		}
		return err
	}
	var err error
	if m.AtOnce {
		err = heal()
	}
	m.Done = proc.Now()
	happened()
	m.moments[Injected].pass()
	watch.last(ctx, m)
	if !m.AtOnce {
		err = heal()
	}
	m.To = proc.Now()
	if err != nil && m.Failed == "" { // if the injection failed, there is nothing to heal
		return fmt.Errorf("%s is not healed: %w", m.Action, err)
	}
	return nil
}

func (w *watcher) last(ctx context.Context, m *Mark) {
	bounded, cancel := context.WithTimeout(ctx, time.Duration(m.Lasts))
	defer cancel()
	if m.Until == 0 {
		<-bounded.Done()
		return
	}
	if w.served(bounded, m.Until-1) {
		proc.Sleep(ctx, time.Duration(m.Linger))
	}
}

func (p *player) heal() error {
	return inject.Each(slices.Concat(p.environment.Paths...), (*inject.Proxy).Heal)
}

func (p *player) end() {
	shutAll(p.hosts)
	p.hosts = nil
}

// shutAll closes hosts, and returns a line about each host that had to be killed.
func shutAll(hosts []*Host) []string {
	left := make([]string, len(hosts))
	_ = inject.AtOnce(len(hosts), func(i int) error {
		if h := hosts[i]; h != nil && h.Process != nil {
			if err := shut(h.Process); err != nil {
				left[i] = fmt.Sprintf("host %s: %v", h.Name(), err)
			}
		}
		return nil
	})
	return slices.DeleteFunc(left, func(s string) bool { return s == "" })
}

// shut makes a host close its client and end. If the host does not end within exitTimeout, shut
// kills the host and returns an error.
func shut(p *host.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), exitTimeout)
	defer cancel()
	if p.Close(ctx) != nil {
		return fmt.Errorf("had not ended %v after its client was closed", exitTimeout)
	}
	return nil
}

// History is the record of one played schedule. Its times are values of proc.Now. The method judge
// adds to the embedded Play what is not known before the end.
type History struct {
	check.Play
	Schedule Schedule
	Marks    []Mark
	// Gaps are periods in which the process of the search did not run, so that its proxies passed no
	// data between hosts and servers.
	Gaps []check.Span
	// RunQueue is the average number of runnable threads per processor.
	RunQueue float64
	// Waited is the longest time for which a thread of a server or plugin was ready to run but got no
	// processor. Each check measures the waits since the previous check.
	Waited time.Duration
	prefix string
}

// Mark is the record of one event of a schedule.
type Mark struct {
	Event
	From   int64  // just before the injection; 0 if the event was not injected
	Done   int64  // just after the injection
	To     int64  // just after the event was healed
	Met    bool   // whether the trigger of the event came
	Failed string // why the event could not be injected

	moments map[Moment]moment
}

// moment lets other events wait until an event has reached one [Moment].
type moment struct {
	come <-chan struct{} // closed when the event has reached the moment
	pass context.CancelFunc
}

func newMoments() map[Moment]moment {
	all := map[Moment]moment{}
	for _, one := range []Moment{Begun, Injected, Healed} {
		ctx, pass := context.WithCancel(context.Background())
		all[one] = moment{ctx.Done(), pass}
	}
	return all
}

func (h *History) names() int {
	n := 0
	for _, g := range h.Schedule.Groups {
		n += g.Names
	}
	return n
}

// The once method returns the number of the first lock of a group, and how many locks the group
// has. Groups are numbered from 1. Group 0 stands for all groups.
func (h *History) once(group int) (first, count int) {
	if group == 0 {
		return 0, h.names()
	}
	for _, g := range h.Schedule.Groups[:group-1] {
		first += g.Names
	}
	return first, h.Schedule.Groups[group-1].Names
}

func (h *History) workload(i int) host.Workload {
	first, _ := h.once(i + 1)
	g := h.Schedule.Groups[i]
	return host.Workload{
		Kind: g.Kind, Prefix: h.prefix, First: first, Names: g.Names, TTL: time.Duration(g.TTL), AtLeast: time.Duration(g.AtLeast), Value: g.Value,
		Limit: g.Limit.lasts(), Hold: g.Hold.lasts(), Pause: g.Pause.lasts(),
	}
}

// countEvery is the number of heartbeats between two counts of the machine's runnable threads.
const countEvery = 20

// observe records in h when the process of the search did not run, and how busy the machine was,
// until the caller calls the end function.
func observe(w *System, h *History) (end func()) {
	beats, looks, runQueues := 0, 0, 0
	var waits proc.Waits // of servers and plugins
	var looking sync.Mutex
	beat := proc.StartHeartbeat(func(*proc.Stall) {
		if beats++; beats%countEvery != 1 {
			return
		}
		looks++
		runQueues += runnable()
		if !looking.TryLock() {
			return
		}
		go func() { // because Pid waits while a server starts, and that is no stall
			defer looking.Unlock()
			var pids []int
			for _, s := range w.Servers {
				pids = append(pids, s.Pid())
			}
			for _, host := range w.Hosts {
				pids = append(pids, host.PluginPid())
			}
			waits.Look(pids...)
		}()
	})
	return func() {
		clock := proc.MachineClock()
		for _, s := range beat.Stop() {
			h.Gaps = append(h.Gaps, check.Span{clock.Of(s.From), clock.Of(s.To)})
		}
		looking.Lock() // the last look has ended
		defer looking.Unlock()
		h.RunQueue = float64(runQueues) / float64(max(1, looks)) / float64(runtime.NumCPU())
		h.Waited = waits.Longest(time.Time{})
	}
}

// runnable returns the number of runnable threads on the machine, or 0 if it is unknown.
func runnable() (now int) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var load float64
	_, _ = fmt.Sscanf(string(text), "%f %f %f %d", &load, &load, &load, &now) // the format of Linux
	return now
}
