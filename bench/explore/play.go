package explore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench/fault"
	"github.com/lockbench/lockbench/bench/store"
	"github.com/lockbench/lockbench/bench/witness"
)

const (
	// startTimeout bounds the start of a host, on a machine that has others to
	// start.
	startTimeout = 30 * time.Second
	// settleTime is how long callers work before the first action, so that every
	// client was served once.
	settleTime = 400 * time.Millisecond
	// endTimeout bounds the release of everything at the end, and the end of a
	// host.
	endTimeout = 10 * time.Second
	// healTimeout bounds one step of an action.
	healTimeout = 30 * time.Second
)

// History is what was seen of one schedule. Times are by [witness.Now].
type History struct {
	Schedule Schedule
	Began    int64 // the callers were told to begin
	Healed   int64 // the last action was over
	Stopped  int64 // the callers were told to stop
	Marks    []Mark
	Seen     []witness.Seen // of each host
	Alive    []bool         // whether it was, at the end
	Left     []string       // what was left over, and where
	Probes   []Probe
	prefix   string
}

// Mark is what became of one event.
type Mark struct {
	Event
	From   int64 // just before it was injected; 0: it was not
	To     int64 // just after it was healed
	Met    bool  // its moment came
	Failed string
}

// Probe is how a name was found when every host had ended.
type Probe struct {
	Name  int
	Took  time.Duration // until it was granted to a new host
	Error string        // why it was not
}

// player plays schedules on one environment at a time, which it keeps for as
// long as it serves.
type player struct {
	opts        *Options
	backend     Backend
	dir         string
	environment *store.Environment
	setting     string
	paths       [][]*Path // of each host, in the environment
	probe       *witness.Process
	plays       int
}

// play plays a schedule. Its error is one of the surroundings, not of a claim.
func (p *player) play(ctx context.Context, s Schedule) (h *History, err error) {
	if err := p.ready(ctx, s.Setting); err != nil {
		return nil, err
	}
	p.plays++
	w := &World{Environment: p.environment, Dir: filepath.Join(p.dir, fmt.Sprint("play-", p.plays))}
	if err := os.Mkdir(w.Dir, 0o700); err != nil {
		return nil, err
	}
	h = &History{Schedule: s, prefix: fmt.Sprintf("explore-%d-%d-", os.Getpid(), p.plays)}
	defer func() {
		err = errors.Join(err, w.Settle())
		p.end(w)
		err = errors.Join(err, p.heal(), os.RemoveAll(w.Dir))
	}()
	if err := p.start(ctx, w, s); err != nil {
		return nil, err
	}
	watch := watchMoments(w)
	defer watch.close()
	if err := p.begin(ctx, w, h); err != nil {
		return nil, err
	}
	p.happen(ctx, w, h, watch)
	if err := p.conclude(ctx, w, h); err != nil {
		return nil, err
	}
	return h, ctx.Err()
}

// ready starts the servers of a setting, unless they are there and well.
func (p *player) ready(ctx context.Context, setting string) error {
	if p.environment != nil && p.setting == setting && p.probe.Alive() && p.well(ctx) {
		return nil
	}
	p.close()
	e, err := store.Open(ctx, p.backend.Name, store.Wish{
		Setting: setting, Needs: powers(p.backend.Name), Many: true, TTL: maxTTL, Plugin: p.backend.Path, Dir: p.dir, ClockLibrary: p.opts.clockLibrary,
	})
	if err != nil {
		return err
	}
	p.environment, p.setting, p.paths = e, setting, nil
	p.probe, err = witness.Start(ctx, p.spec(nil, -1, p.dir, p.backend.Path))
	return err
}

// well brings the servers back to where they began, if they are not there.
func (p *player) well(ctx context.Context) bool {
	return p.environment.Healthy(ctx) == nil || p.environment.Again(ctx) == nil && p.environment.Healthy(ctx) == nil
}

// maxTTL is the longest of a schedule.
const maxTTL = 10 * time.Second

// powers are those that an environment has if it can. Paths are made for each
// host.
func powers(backend string) []fault.Power {
	var all []fault.Power
	for _, power := range []fault.Power{
		fault.PowerServers, fault.PowerKeeps, fault.PowerClock, fault.PowerLeader, fault.PowerReadOnly, fault.PowerExhaust,
	} {
		if store.Lacks(backend)[power] == "" {
			all = append(all, power)
		}
	}
	return all
}

// close ends the servers and the host that probes. What cannot be ended any
// more is the watchers' of package env.
func (p *player) close() {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if p.probe != nil {
		_ = p.probe.Close(ctx)
		p.probe = nil
	}
	if p.environment != nil {
		_ = p.environment.Close()
		p.environment = nil
	}
}

// spec is how a host is started. A recorder that was built from another version
// gets the same.
func (p *player) spec(paths []*Path, number int, dir, plugin string) witness.Spec {
	var proxies []*fault.Proxy
	for _, path := range paths {
		proxies = append(proxies, path.Proxy)
	}
	cfg := p.environment.ConfigOf(proxies)
	maps.Copy(cfg, p.backend.Config)
	return witness.Spec{
		Backend: p.backend.Name, Path: plugin, Config: cfg, NoMTLS: p.backend.NoMTLS, Host: number, TempDir: dir,
		Resources: witness.Resources{Dir: dir}, Program: p.opts.Recorder,
	}
}

// start starts the hosts of a schedule.
func (p *player) start(ctx context.Context, w *World, s Schedule) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for len(p.paths) < len(s.Hosts) {
		proxies, err := p.environment.AddPaths()
		if err != nil {
			return err
		}
		var paths []*Path
		for _, proxy := range proxies {
			paths = append(paths, &Path{Proxy: proxy})
		}
		p.paths = append(p.paths, paths)
	}
	errs := make([]error, len(s.Hosts))
	var starting sync.WaitGroup
	for i, plan := range s.Hosts {
		dir := filepath.Join(w.Dir, hostName(i))
		h := &Host{Number: i, Paths: p.paths[i], Dir: filepath.Join(dir, "tmp")}
		w.Hosts = append(w.Hosts, h)
		starting.Go(func() { errs[i] = p.launch(ctx, h, dir, plan) })
	}
	starting.Wait()
	return errors.Join(errs...)
}

// launch starts one host.
func (p *player) launch(ctx context.Context, h *Host, dir string, plan HostPlan) error {
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return err
	}
	plugin := p.backend.Path
	if plan.Wrapper != "" {
		var err error
		if plugin, err = wrap(dir, p.backend.Name, plan.Wrapper, plugin); err != nil {
			return err
		}
	}
	var err error
	h.Process, err = witness.Start(ctx, p.spec(h.Paths, h.Number, h.Dir, plugin))
	return err
}

// begin lets the callers begin, and waits until every host was served.
func (p *player) begin(ctx context.Context, w *World, h *History) error {
	for _, host := range w.Hosts {
		first := 0
		for i, g := range h.Schedule.Groups {
			callers := h.Schedule.Hosts[host.Number].Callers[i]
			err := host.Work(witness.Workload{
				Kind: g.Kind, Prefix: h.prefix, First: first, Names: g.Names, Callers: callers, TTL: time.Duration(g.TTL),
				Limit: g.Limit.lasts(), Hold: g.Hold.lasts(), Pause: g.Pause.lasts(), Seed: h.Schedule.Seed + uint64(host.Number<<8+i),
			})
			if err != nil {
				return err
			}
			first += g.Names
		}
	}
	h.Began = witness.Now()
	sleep(ctx, settleTime)
	return nil
}

// happen lets every event take place, and returns when all of it is healed and
// the callers have worked for long enough.
func (p *player) happen(ctx context.Context, w *World, h *History, watch *watcher) {
	began := time.Now()
	h.Marks = make([]Mark, len(h.Schedule.Events))
	var going sync.WaitGroup
	for i, e := range h.Schedule.Events {
		m := &h.Marks[i]
		m.Event = e
		going.Go(func() { befall(ctx, w, m, watch, began) })
	}
	going.Wait()
	h.Healed = witness.Now()
	sleep(ctx, max(time.Until(began.Add(time.Duration(h.Schedule.Length))), settleTime))
}

// befall lets one event take place.
func befall(ctx context.Context, w *World, m *Mark, watch *watcher, began time.Time) {
	a, err := actionOf(m.Action)
	if err != nil {
		m.Failed = err.Error()
		return
	}
	if !sleep(ctx, time.Until(began.Add(time.Duration(m.At)))) {
		return
	}
	happened := func() {}
	if m.Moment != "" {
		m.Met, happened = watch.await(ctx, m.Of, m.Moment)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), healTimeout)
	defer cancel()
	m.From = witness.Now()
	if err := a.Inject(bounded, w, m.Event); err != nil {
		m.Failed = fmt.Sprintf("inject: %v", err)
	}
	happened()
	sleep(ctx, time.Duration(m.Lasts))
	if a.Heal != nil {
		if err := a.Heal(bounded, w, m.Event); err != nil {
			m.Failed += fmt.Sprintf(" heal: %v", err)
		}
	}
	m.To = witness.Now()
}

// conclude ends the callers and hosts, and looks at what they leave.
func (p *player) conclude(ctx context.Context, w *World, h *History) error {
	var plugins []int
	h.Stopped = witness.Now()
	var ending sync.WaitGroup
	for _, host := range w.Hosts {
		ending.Go(func() {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			defer cancel()
			if host.Alive() {
				_ = host.Release(bounded) // what is not released is found by the probe
			}
		})
	}
	ending.Wait()
	for _, host := range w.Hosts {
		h.Alive = append(h.Alive, host.Alive())
		plugins = append(plugins, host.PluginPid())
	}
	p.end(w)
	for _, host := range w.Hosts {
		h.Seen = append(h.Seen, host.Seen())
	}
	for i, host := range w.Hosts {
		h.Left = append(h.Left, leftOf(host, plugins[i])...)
	}
	p.look(ctx, h)
	left, err := p.environment.Leftovers(ctx, h.prefix)
	if err != nil {
		return err
	}
	for _, key := range left {
		h.Left = append(h.Left, "in the store: "+key)
	}
	return nil
}

// heal lets everything pass on the paths again.
func (p *player) heal() error {
	var errs []error
	for _, paths := range p.paths {
		errs = append(errs, eachPath(paths, func(path *Path) error { return path.Proxy.Heal() }))
	}
	return errors.Join(errs...)
}

// end closes the hosts that are still there.
func (p *player) end(w *World) {
	var ending sync.WaitGroup
	for _, host := range w.Hosts {
		if host.Process == nil {
			continue
		}
		ending.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
			defer cancel()
			_ = host.Close(ctx)
		})
	}
	ending.Wait()
}

// leftOf finds what a host has left on the machine: its last plugin, and files.
func leftOf(h *Host, plugin int) []string {
	var left []string
	for deadline := time.Now().Add(leaves); plugin > 0 && syscall.Kill(plugin, 0) == nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			left = append(left, fmt.Sprintf("plugin process %d of host %s", plugin, h.Name()))
			break
		}
	}
	files, err := os.ReadDir(h.Dir)
	if err != nil {
		return append(left, err.Error())
	}
	for _, f := range files {
		left = append(left, fmt.Sprintf("%s in the temporary directory of host %s", f.Name(), h.Name()))
	}
	return left
}

// leaves is how long a plugin may live after its host.
const leaves = 8 * time.Second

// look lets a new host have every name.
func (p *player) look(ctx context.Context, h *History) {
	var names []string
	for _, g := range h.Schedule.Groups {
		for range g.Names {
			names = append(names, fmt.Sprint(h.prefix, len(names)))
		}
	}
	p.probe.Forget()
	asked := witness.Now()
	patience := maxTTL + endTimeout
	_ = p.probe.Acquire(names, 0, maxTTL, patience)
	bounded, cancel := context.WithTimeout(ctx, patience+endTimeout)
	defer cancel()
	_ = p.probe.Await(bounded, func(s witness.Seen) bool { return len(s.Leases)+len(s.Failed) >= len(names) })
	seen := p.probe.Seen()
	found := map[int]time.Duration{}
	for _, l := range seen.Leases {
		found[l.Name] = time.Duration(l.GrantedNs - asked)
	}
	for i := range names {
		took, granted := found[i]
		probe := Probe{Name: i, Took: took}
		if !granted {
			probe.Took, probe.Error = time.Duration(witness.Now()-asked), fmt.Sprint(seen.Failed)
		}
		h.Probes = append(h.Probes, probe)
	}
	_ = p.probe.Release(bounded)
}
