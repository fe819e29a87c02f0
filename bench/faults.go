package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/faults"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

type FaultsMode string

const (
	FaultsTable  FaultsMode = ""       // plays the table of faults
	FaultsSearch FaultsMode = "search" // draws schedules of actions
	FaultsReplay FaultsMode = "replay" // plays reproducers, which are recorded failures
	FaultsSoak   FaultsMode = "soak"   // searches with hosts that keep running from one schedule to the next
	FaultsList   FaultsMode = "list"   // lists faults, actions and reproducers
)

// FaultsPlan says which faults are played on which backends. Some of its fields, such as Length,
// have an effect only in some modes.
type FaultsPlan struct {
	Mode FaultsMode
	// Length is the duration of a FaultsSearch over all backends together, or the duration of a
	// FaultsSoak on each backend.
	Length time.Duration
	// Replay lists reproducers (recorded failures), by built-in name or by path, or has "all".
	Replay []string

	// Backends are names of plugins. An empty list means every plugin that lockbench finds.
	Backends []string
	// Faults and Actions limit what is played. FaultsTable plays only faults that are in Faults and
	// that do an action in Actions. FaultsSearch and FaultsSoak play only actions that are in Actions
	// and that a fault in Faults does. FaultsReplay plays only reproducers with such an action. An
	// empty list sets no limit.
	Faults, Actions []string
	// Quick shortens every mode. FaultsTable plays each fault once by default. If Faults and Actions
	// are empty, it plays only the quick faults. FaultsSearch spends less time on making a reproducer
	// smaller. FaultsReplay of "all" leaves out long reproducers. FaultsSoak has fewer leases.
	Quick bool
	// Runs is the number of times that each fault or reproducer is played. 0 means 3 for a fault and
	// 10 for a reproducer, and fewer if Quick is set.
	Runs int
	// Seed determines the random schedules, orders and times. If Seed is 0, a replay uses each
	// reproducer's own seed, and all other modes use a random seed.
	Seed uint64
	// KeepGoing makes FaultsSearch go on after a reproducer broke its rule when it was played again.
	// Without KeepGoing, the search of the backend then ends. All other modes always go on.
	KeepGoing bool
	// HostProgram is the path of the lockbench binary for host processes. "" means this binary.
	HostProgram string

	// Servers needs no Targets, because faults harm only servers that lockbench starts.
	Servers
	// Out is the directory for the result folder. It must be empty or missing. FaultsReplay writes a
	// folder only if Out is set.
	Out string
}

// Faults carries out the plan on servers that it starts itself, because faults harm servers. The
// Outcome is nil if nothing was played. The error wraps [ErrUnsafe] if a backend broke a claim (a
// promise of docs/safety.md).
func Faults(ctx context.Context, p FaultsPlan, opts Options) (*Outcome, error) {
	p.starts = true
	if err := cmp.Or(p.read(opts.Lines, p.Backends...), p.Check(), p.meetAll(ctx)); err != nil {
		return nil, err
	}
	switch p.Mode {
	case FaultsList:
		return p.list()
	case FaultsReplay:
		return p.replay(ctx, opts)
	}
	if p.Seed == 0 {
		p.Seed = randomSeed()
	}
	if err := chooseFolder(&p.Out); err != nil {
		return nil, err
	}
	if p.Mode == FaultsTable {
		return p.table(ctx, opts)
	}
	return p.search(ctx, opts)
}

const maxLength = 7 * 24 * time.Hour

// Check returns a [*UsageError] if lockbench cannot carry out the plan.
func (p FaultsPlan) Check() error {
	timed := p.Mode == FaultsSearch || p.Mode == FaultsSoak
	switch {
	case timed && (p.Length < time.Second || p.Length > maxLength):
		return usagef("a %s of %v is not between 1s and a week", p.Mode, p.Length)
	case p.Mode == FaultsReplay && len(p.Replay) == 0:
		return usagef("no reproducer was named")
	case p.Runs < 0 || p.Runs > 1000:
		return usagef("%d runs are not between 1 and 1000", p.Runs)
	}
	return cmp.Or(checkNames("faults", "fault", p.Faults), checkNames("actions", "action", p.Actions))
}

func (p FaultsPlan) faults() []faults.Fault {
	chosen := p.Faults
	if len(chosen) == 0 && len(p.Actions) == 0 && p.Quick && p.Mode == FaultsTable {
		chosen = faults.Quick
	}
	return slices.DeleteFunc(faults.All(), func(f faults.Fault) bool {
		return len(chosen) > 0 && !slices.Contains(chosen, f.Name) ||
			len(p.Actions) > 0 && !slices.ContainsFunc(p.Actions, f.DoesAction)
	})
}

func (p FaultsPlan) actions() []string {
	does := func(a string) bool {
		return slices.ContainsFunc(faults.All(), func(f faults.Fault) bool { return slices.Contains(p.Faults, f.Name) && f.DoesAction(a) })
	}
	return slices.DeleteFunc(words("actions"), func(a string) bool {
		return len(p.Actions) > 0 && !slices.Contains(p.Actions, a) || len(p.Faults) > 0 && !does(a)
	})
}

func (p FaultsPlan) nothingChosen(what string) error {
	return usagef("no %s is one of %s", what, strings.Join(slices.Concat(p.Faults, p.Actions, p.Backends), ", "))
}

// judged returns the backends of the plan, and a manifest for a run with the given scenario. If
// served is set, judged leaves out plugins whose servers lockbench cannot start.
func (p FaultsPlan) judged(ctx context.Context, served bool, scenario string, runs int) (backends []faults.Backend, m results.Manifest, err error) {
	for _, name := range p.Backends {
		if !kinds.Of(name).Known() {
			return nil, m, usagef("%s", faults.NoServers(name))
		}
	}
	described, err := Plan{Backends: p.Backends, Servers: p.Servers, TTL: faults.TTL}.describe(ctx)
	if err != nil {
		return nil, m, err
	}
	m.Plan = results.Plan{Scenarios: []string{scenario}, Runs: runs, Seed: p.Seed, Hosts: []int{1}, TTLms: faults.TTL.Milliseconds(), MTLS: !p.noMTLS(), Quick: p.Quick, Env: EnvLocal, Commands: p.Commands, Claims: p.claimed, Config: p.configured()}
	binaries := map[string]string{}
	for _, d := range described {
		if served && !kinds.Of(d.Name).Known() {
			continue
		}
		if p.strangers[d.Name] != nil {
			// Start the servers once, so that a mistake in the user's command shows before the first fault.
			tried, err := new(environment).start(ctx, d.Found, false)
			if err == nil {
				err = tried.Close()
			}
			if err != nil {
				return nil, m, err
			}
		}
		claims := d.says.Properties
		m.Plan.Backends, binaries[filepath.Base(d.Path)] = append(m.Plan.Backends, d.Name), d.Path
		path, err := filepath.Abs(d.Path) // must be absolute, because wrapper scripts start the plugin
		if err != nil {
			return nil, m, err
		}
		b := faults.Described(path, d.says)
		b.Name, b.Config, b.Claims, b.NoMTLS, b.HostProgram = d.Name, d.config, p.claims(d.Name), p.noMTLS(), p.HostProgram
		backends = append(backends, b)
		m.Subjects = append(m.Subjects, results.Subject{
			Name: d.Name, Kind: results.KindPlugin, Version: d.says.Version, Fencing: string(claims.Fencing), Scope: string(claims.Scope),
		})
	}
	if len(backends) == 0 {
		return nil, m, Hinted(usagef("lockbench knows for none of these backends how to start servers"), "--server BACKEND=COMMAND says so")
	}
	m.Binaries, err = checksums(binaries)
	return backends, m, err
}

// runs returns how many times each fault or each reproducer is played.
func (p FaultsPlan) runs(usual, quick int) int {
	if p.Quick {
		usual = quick
	}
	return cmp.Or(p.Runs, usual)
}

// tellEvery is the shortest time between two reports of frequent events.
const tellEvery = 10 * time.Second

// lines reports the progress of a mode that has no progress bar. The mention method is for frequent
// events. Unless all is set, mention writes at most one event per tellEvery.
type lines struct {
	w   io.Writer
	all bool

	mu   sync.Mutex
	last time.Time
}

func (l *lines) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, format+"\n", args...)
}

func (l *lines) mention(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all || time.Since(l.last) >= tellEvery {
		l.last = time.Now()
		fmt.Fprintf(l.w, format+"\n", args...)
	}
}

// table injects the chosen faults, and then judges safety from the records in the result folder.
func (p FaultsPlan) table(ctx context.Context, opts Options) (*Outcome, error) {
	plan := faults.Plan{Faults: p.faults(), Rounds: p.runs(3, 1), Seed: p.Seed}
	if len(plan.Faults) == 0 {
		return nil, p.nothingChosen("fault")
	}
	backends, m, err := p.judged(ctx, false, "safety", plan.Rounds)
	if err != nil {
		return nil, orInterrupted(ctx, err)
	}
	plan.Backends = backends
	var missing []string
	rounds := 0
	_, err = fillFolder(ctx, p.Out, m, func(folder *results.Folder, _ *results.Manifest) error {
		cells, runnable := plan.Cells()
		opts.Progress.Begin(cells, time.Duration(runnable)*(tableSetup+time.Duration(plan.Rounds)*tableRound))
		defer opts.Progress.End()
		return faults.Run(ctx, plan, opts.Progress.Step, func(r results.Round) error {
			if r.Missing == "" {
				rounds++
			} else {
				missing = append(missing, fmt.Sprintf("%s under %s: %s", r.Backend, r.Fault, r.Missing))
			}
			if r.Failure != "" {
				opts.Log.Warn("round failed", "backend", r.Backend, "fault", r.Fault, "round", r.Round, "failure", r.Failure)
			}
			return folder.AddRound(r)
		})
	})
	res := result{dir: p.Out, cells: rounds, interrupted: ctx.Err() != nil}
	if err == nil {
		res.verdict, err = check.Dir(p.Out)
	}
	if err == nil && rounds == 0 && !res.interrupted {
		err = &EnvError{Err: fmt.Errorf("none of these faults can be run here: %s", strings.Join(missing, "; "))}
	}
	return res.outcome(ctx, err)
}

// tableRound and tableSetup are approximate times: to play a fault once, and to start servers.
const (
	tableRound = 5 * time.Second
	tableSetup = 3 * time.Second
)
