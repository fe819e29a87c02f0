package bench

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench/internal/baseline"
	"github.com/lockbench/lockbench/bench/internal/faults"
	"github.com/lockbench/lockbench/bench/internal/measure"
	"github.com/lockbench/lockbench/bench/internal/report"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/servers/kinds"
	"github.com/lockbench/lockbench/internal/similar"
)

// Plan says what to measure. Some fields have an effect only in some scenarios. In Scenarios,
// Baselines and Modes, the word "all" stands for every known name. [Run] rejects a plan if
// [Plan.Check] returns an error for it.
type Plan struct {
	// Backends lists the plugins to measure. If the list is empty, lockbench measures every plugin
	// that it finds. It then leaves out plugins whose servers cannot be started, without an error.
	Backends  []string
	Scenarios []string
	Baselines []string // a baseline of a backend that is not measured is left out
	Clients   []int    // numbers of concurrent callers per host, each measured in turn; empty means the scenario's defaults
	Hosts     []int    // numbers of host processes, each measured in turn (1 is lockbench itself); empty means the scenario's defaults
	// Keys lists numbers of locks, for scenario throughput. Hold lists how long callers hold a lock,
	// for scenarios throughput, contend and footprint. Each value is measured in turn. An empty list
	// means the default values.
	Keys []int
	Hold []time.Duration
	// RTT lists delays, from 0 to one second, to add to each round trip between a host and the store.
	// Each delay is measured in turn. An empty list means no delay.
	RTT []time.Duration
	// Rate is the number of cycles (acquire and release) per second in the open loop of scenario
	// acquire. 0 means half the rate that the scenario's closed loop reached under the same load.
	Rate float64
	// Modes, Candidates and Tick are for scenario takeover. Modes lists ways to make a leader fail.
	// Its default is kill-host. Candidates is the number of processes that campaign (0 means 2). Tick
	// is the time after which a candidate asks the store again. If Tick is 0, the store wakes the
	// candidate.
	Modes      []string
	Candidates int
	Tick       time.Duration
	// For is the total time, over all runs, in which scenario ttl holds leases.
	For time.Duration
	// Stress keeps processors and disk busy during the whole measurement.
	Stress bool
	Runs   int // repetitions of every cell
	// Parts is the number of runs of this plan that measure at the same time, each on another machine.
	// These runs meet through the store. 0 means that this run measures alone.
	Parts int
	TTL   time.Duration
	// WarmUp is the duration of the warm-up for each cell, which is one subject under one load.
	// Measure is the duration of the measurement after the warm-up.
	WarmUp, Measure time.Duration
	// Seed determines the order of the measurements. 0 means a random seed.
	Seed  uint64
	Quick bool
	// Env is the environment in which throwaway servers run, one of [Environments]. "" means the
	// servers that "env up" keeps or, if it keeps none, local processes.
	Env string
	Servers
	// VS is a directory with a second build of the plugins. The run measures both builds in turn, so
	// that they can be compared. "" means that there is no second build.
	VS string
	// Out is the directory for the result folder. It must be empty or missing. "" means a new
	// directory in results, with the current time as its name.
	Out string
}

const (
	// The Measure field of a plan is between minMeasure and maxMeasure.
	minMeasure = 10 * time.Millisecond
	maxMeasure = time.Hour
	maxHold    = time.Hour
	maxRTT     = time.Second
	// usualFor and quickFor are defaults of the For field, which is the duration of scenario ttl. A
	// user may choose a duration from minFor to maxFor.
	usualFor, quickFor = time.Minute, 12 * time.Second
	minFor, maxFor     = time.Second, 6 * time.Hour
	// QuickTTL is the default TTL of a quick plan whose only scenario is takeover. It is short,
	// because in half of the failure modes, a new leader takes over only after about one TTL.
	QuickTTL = 3 * time.Second
	// quickRuns is the smallest number of runs with which a median has a 95 % confidence interval.
	quickRuns = 6
)

// DefaultPlan is the plan of "lockbench run" without flags or, if quick is set, with --quick.
func DefaultPlan(quick bool) Plan {
	p := Plan{
		Scenarios: []string{"acquire"},
		Runs:      10,
		TTL:       10 * time.Second,
		For:       usualFor,
		WarmUp:    measure.WarmUp,
		Measure:   results.MeasuredFor(quick),
		Quick:     quick,
	}
	if quick {
		p.Runs, p.WarmUp, p.For = quickRuns, measure.QuickWarmUp, quickFor
	}
	return p
}

// filled returns the plan with a random seed if it has none, and with all known names in place of
// the word "all".
func (p Plan) filled() Plan {
	for flag, names := range map[string]*[]string{"scenarios": &p.Scenarios, "baselines": &p.Baselines, "modes": &p.Modes} {
		if slices.Contains(*names, "all") {
			*names = words(flag)
		}
		*names = unique(*names)
	}
	p.Backends = unique(p.Backends)
	p.Clients, p.Hosts, p.Keys, p.Hold, p.RTT = unique(p.Clients), unique(p.Hosts), unique(p.Keys), unique(p.Hold), unique(p.RTT)
	if slices.Equal(p.RTT, near) {
		p.RTT = nil
	}
	if p.Seed == 0 {
		p.Seed = randomSeed()
	}
	return p
}

// near is the list of added RTTs in a plan that names none. It has only the delay 0.
var near = []time.Duration{0}

// randomSeed returns a seed that is short enough for a user to type it.
func randomSeed() uint64 { return rand.Uint64N(1e9) + 1 }

func unique[T comparable](in []T) []T {
	var out []T
	for _, v := range in {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Check returns a [*UsageError] if lockbench cannot carry out the plan.
func (p Plan) Check() error {
	err := cmp.Or(checkNames("scenarios", "scenario", p.Scenarios), checkNames("baselines", "baseline", p.Baselines), checkNames("modes", "mode of takeover", p.Modes))
	if err != nil {
		return err
	}
	for _, s := range p.Scenarios {
		sc, _ := measure.ByName(s)
		inside := slices.Equal(p.Hosts, []int{1})
		if sc.MinClients > 0 && len(p.Clients) > 0 && inside && slices.Max(p.Clients) < sc.MinClients {
			return usagef("scenario %s needs at least %d clients", s, sc.MinClients)
		}
	}
	for _, each := range []struct {
		what        string
		numbers     []int
		least, most int
	}{
		{"hosts", p.Hosts, 1, 64}, {"clients", p.Clients, 1, 4096}, {"keys", p.Keys, 1, 65536}, {"runs", []int{p.Runs}, 1, 1000},
		{"candidates", []int{cmp.Or(p.Candidates, 2)}, 2, 32}, {"parts", []int{cmp.Or(p.Parts, 2)}, 2, 64},
	} {
		for _, n := range each.numbers {
			if n < each.least || n > each.most {
				return usagef("%d %s are not between %d and %d", n, each.what, each.least, each.most)
			}
		}
	}
	switch {
	case len(p.Scenarios) == 0:
		return usagef("no scenario was named")
	case slices.Contains(p.Scenarios, "ttl") && (p.For < minFor || p.For > maxFor):
		return usagef("a time of %v for scenario ttl is not between %v and %v", p.For, minFor, maxFor)
	case p.Measure < minMeasure || p.Measure > maxMeasure:
		return usagef("a measured time of %v is not between %v and %v", p.Measure, minMeasure, maxMeasure)
	case !(p.Rate >= 0 && p.Rate <= 1e6):
		return usagef("a rate of %v is not between 0 and 1000000 cycles/s", p.Rate)
	case p.Tick < 0 || p.Tick > 0 && p.Tick < time.Millisecond:
		return usagef("a tick of %v is not at least 1ms", p.Tick)
	}
	return errors.Join(p.checkHold(), p.checkParts())
}

func (p Plan) checkHold() error {
	throughput, contend := slices.Contains(p.Scenarios, "throughput"), slices.Contains(p.Scenarios, "contend")
	for _, rtt := range p.RTT {
		if rtt < 0 || rtt > maxRTT {
			return usagef("a round trip of %v is not between 0 and %v", rtt, maxRTT)
		}
	}
	for _, d := range p.Hold {
		switch {
		case (throughput || contend) && (d < 0 || d >= p.TTL):
			return usagef("a hold of %v is not between 0 and the TTL of %v", d, p.TTL)
		case d < 0 || d > maxHold:
			return usagef("a hold of %v is not between 0 and %v", d, maxHold)
		}
	}
	return nil
}

func (p Plan) asked() measure.Overrides {
	return measure.Overrides{Clients: p.Clients, Hosts: p.Hosts, Keys: p.Keys, Hold: p.Hold, Quick: p.Quick, Modes: p.Modes, Candidates: p.Candidates}
}

// A cell is the measurement of one subject, such as a backend, in one scenario under one load.
type cell struct {
	measure.Workload
	subject  *subject
	scenario measure.Scenario
}

func (c cell) section() results.Section {
	return results.Section{
		CellName: results.CellName{
			Scenario: c.scenario.Name, Backend: c.subject.Name, Mode: c.Mode, Hosts: c.Hosts, Clients: c.Clients, Keys: c.Keys, Hold: c.Hold, RTT: c.RTT,
		},
		Kind: c.subject.Kind, Fencing: c.subject.Fencing,
	}
}

// group identifies the cells whose figures are compared with each other.
type group struct {
	measure.Workload
	scenario string
}

// rounds returns, for each run, the cells in the order in which that run measures them. Only the
// seed determines the order. Subjects that are compared are measured one after the other, so that
// the machine is in the same state for all of them.
func rounds(cells []cell, runs int, seed uint64) [][]cell {
	r := rand.New(rand.NewPCG(seed, 0x6c6f636b))
	var groups [][]cell
	index := map[group]int{}
	for _, c := range cells {
		key := group{c.Workload, c.scenario.Name}
		if _, ok := index[key]; !ok {
			index[key] = len(groups)
			groups = append(groups, nil)
		}
		groups[index[key]] = append(groups[index[key]], c)
	}
	out := make([][]cell, runs)
	for i := range out {
		r.Shuffle(len(groups), func(a, b int) { groups[a], groups[b] = groups[b], groups[a] })
		for _, g := range groups {
			r.Shuffle(len(g), func(a, b int) { g[a], g[b] = g[b], g[a] })
			out[i] = append(out[i], g...)
		}
	}
	return out
}

func (p Plan) recorded(backends, baselines []string) results.Plan {
	if !slices.Contains(p.Scenarios, "ttl") {
		p.For = 0 // no cell uses it
	}
	return results.Plan{
		Seed: p.Seed, Backends: backends, Baselines: baselines, Scenarios: p.Scenarios,
		Clients: p.Clients, Hosts: p.Hosts, Keys: p.Keys, Hold: p.Hold, RTT: p.RTT, Rate: p.Rate, Runs: p.Runs, TTLms: p.TTL.Milliseconds(),
		WarmUpms: p.WarmUp.Milliseconds(), Measurems: p.Measure.Milliseconds(),
		Modes: p.Modes, Candidates: p.Candidates, TickMs: p.Tick.Milliseconds(), Parts: p.Parts, ForMs: p.For.Milliseconds(), Stress: p.Stress,
		MTLS: !p.noMTLS(), Quick: p.Quick, Env: p.Env, OwnTargets: slices.Sorted(maps.Keys(p.own)),
		Commands: p.Commands, Config: p.configured(),
	}
}

// UsageError is the error for a command that lockbench cannot carry out as the user wrote it.
type UsageError struct{ Msg string }

func (e *UsageError) Error() string { return e.Msg }

func usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Suggest returns the end of an error message about an unknown name. It proposes the known names
// that are similar, or lists all known names if none is similar.
func Suggest(name string, known []string) string { return similar.Suggest(name, known) }

// unknown returns the error for an unknown name. Parameter what is its kind, such as "scenario".
func unknown(what, name string, known []string) error {
	return usagef("there is no %s %q%s", what, name, similar.Suggest(name, known))
}

// keepsData reports whether a throwaway server must store its data on disk, because the plan
// restarts the server. If the server then forgot its locks, a second host would become leader.
func (p Plan) keepsData(backend string) bool {
	return kinds.Of(backend).Forgets && slices.Contains(p.Modes, "server-restart")
}

// Named is a word that a flag accepts, with a text about it.
type Named struct {
	Name string `json:"name"`
	Does string `json:"does"` // in one line
}

// Choices returns the words that the flag accepts, or nil if the flag has no fixed list of words.
func Choices(flag string) []Named {
	switch flag {
	case "scenarios":
		return named(measure.All(), func(s measure.Scenario) Named { return Named{s.Name, s.Doc} })
	case "modes":
		return named(measure.Modes(), func(mode string) Named { return Named{mode, measure.ModeDoc(mode)} })
	case "baselines":
		return named(baseline.All(), func(b baseline.Baseline) Named { return Named{b.Name, b.Doc} })
	case "faults":
		return named(faults.All(), nameOfFault)
	case "actions":
		return named(faults.Actions(), nameOfAction)
	case "replay":
		kept, _ := faults.Kept() // cannot fail, because a test has read all reproducers
		return named(kept, nameOfReproducer)
	}
	return nil
}

func words(flag string) (names []string) {
	for _, n := range Choices(flag) {
		names = append(names, n.Name)
	}
	return names
}

func checkNames(flag, what string, names []string) error {
	known := words(flag)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return unknown(what, name, known)
		}
	}
	return nil
}

// ScenarioHelp says what each scenario measures.
func ScenarioHelp() string {
	var b strings.Builder
	for _, s := range Choices("scenarios") {
		does, _, _ := strings.Cut(s.Does, ":")
		does, _, _ = strings.Cut(does, ";")
		fmt.Fprintf(&b, "  %-12s%s\n", s.Name, report.Wrap(does, 66, strings.Repeat(" ", 14)))
	}
	return strings.TrimRight(b.String(), "\n")
}

func nameOfFault(f faults.Fault) Named   { return Named{f.Name, f.Does} }
func nameOfAction(a faults.Action) Named { return Named{a.Name, a.DoesTo("a " + string(a.On))} }

func nameOfReproducer(r faults.Reproducer) Named { return Named{r.Name, r.Finding} }

func named[T any](all []T, name func(T) Named) []Named {
	var out []Named
	for _, one := range all {
		out = append(out, name(one))
	}
	return out
}

// Names lists the words that the flags of "lockbench run" accept.
func Names() *Outcome {
	return listing(list{"scenarios", Choices("scenarios")}, list{"modes of takeover", Choices("modes")}, list{"baselines", Choices("baselines")})
}

// list shows the faults, actions and reproducers (recorded failures) that fit the plan.
func (p FaultsPlan) list() (*Outcome, error) {
	concerns := func(known func(backend string) bool) bool {
		return len(p.Backends) == 0 || slices.ContainsFunc(p.Backends, known)
	}
	chosen := slices.DeleteFunc(p.faults(), func(f faults.Fault) bool {
		return !concerns(func(b string) bool { return f.Fits(kinds.Of(b)) == "" })
	})
	actions := faults.Chosen(p.actions())
	actions = slices.DeleteFunc(actions, func(a faults.Action) bool { return !concerns(a.KnownFor) })
	p.Replay = []string{"all"}
	reproducers, _ := p.reproducers() // an empty list is no error here
	return listing(
		list{"faults of the table", named(chosen, nameOfFault)},
		list{"actions of a search", named(actions, nameOfAction)},
		list{"reproducers to replay", named(reproducers, nameOfReproducer)},
	), nil
}

type list struct {
	Title string  `json:"title"`
	Names []Named `json:"names"`
}

func listing(lists ...list) *Outcome {
	var b strings.Builder
	for _, l := range lists {
		fmt.Fprintf(&b, "%s:\n", l.Title)
		for _, n := range l.Names {
			fmt.Fprintf(&b, "  %-31s %s\n", n.Name, n.Does)
		}
	}
	return &Outcome{data: lists, text: b.String()}
}

// chooseFolder checks that the folder *out is empty or missing. If *out is "", it becomes a name
// with the current time, and with a number if that name exists.
func chooseFolder(out *string) error {
	if *out != "" {
		return results.Vacant(*out)
	}
	dir := filepath.Join("results", time.Now().UTC().Format("20060102T150405Z"))
	*out = dir
	for n := 2; results.Vacant(*out) != nil && n < 100; n++ {
		*out = fmt.Sprintf("%s-%d", dir, n)
	}
	return nil
}
