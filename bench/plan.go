package bench

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/measure"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/servers/kinds"
	"github.com/lockbench/lockbench/internal/similar"
)

// Plan says what to measure. [Run] calls [Plan.Check] first. A field that belongs
// to some scenarios has no effect on the other scenarios. The word all in
// Scenarios, Baselines or Modes stands for every name.
type Plan struct {
	// Backends are names of plugins. None means every plugin that is found and whose server can
	// be started. A backend that is left out for that reason is reported, but is not an error.
	Backends  []string
	Scenarios []string
	Baselines []string // a baseline of a backend that is not measured is left out
	Clients   []int    // concurrent callers of one host; each number is measured; none: the scenario's default numbers
	Hosts     []int    // host processes, each with Clients callers; each number is measured; 1: lockbench itself is the host; none: the scenario's defaults
	// Keys and Hold are for scenario throughput: numbers of locks, and times for
	// which they are held. Each value is measured; none means the defaults.
	// Scenarios contend and footprint also use Hold.
	Keys []int
	Hold []time.Duration
	// RTT are delays added to each round trip between host and store, from 0 to one
	// second. Each value is measured; none means 0.
	RTT []time.Duration
	// Rate is how many cycles per second the open loop of scenario acquire starts.
	// 0 means half the rate that the closed loop of the same cell reached.
	Rate float64
	// Modes, Candidates and Tick are for scenario takeover. Modes are the ways in which leaders
	// end, each measured (none: kill-host). Candidates is how many processes campaign (0 means
	// 2). Tick is how often candidates ask the store (0: they wait until the store wakes them).
	Modes      []string
	Candidates int
	Tick       time.Duration
	// For is how long scenario ttl holds leases, in all runs together.
	For time.Duration
	// Stress loads processors and disk during the whole measurement.
	Stress bool
	Runs   int // repetitions of every cell
	// Parts is how many runs of this plan, on as many machines, measure the same cells at
	// the same time. The runs wait for each other on the store. 0 means this run alone.
	Parts int
	TTL   time.Duration
	// WarmUp and Measure are the durations for one cell in one run.
	WarmUp, Measure time.Duration
	// Seed determines the order of the cells; 0 means a random seed.
	Seed  uint64
	Quick bool
	MTLS  bool
	// Env is where throwaway servers run, one of [Environments]. "" means the
	// kept servers if there are any, else local ones.
	Env string
	Servers
	// VS is a directory with another build of the plugins. Cells of the two builds
	// are measured in turn. "" means none.
	VS string
	// Out is the directory of the result folder, new or empty. "" means a
	// directory below results that is named after the time.
	Out string
}

// These are durations and limits of durations, mostly for one measurement.
const (
	warmUp      = 200 * time.Millisecond
	quickWarmUp = 50 * time.Millisecond
	// minMeasure to maxMeasure is the range from which a user may choose Measure.
	minMeasure = 10 * time.Millisecond
	maxMeasure = time.Hour
	// maxHold is the longest time for which scenario footprint holds leases.
	maxHold = time.Hour
	// maxRTT is the longest RTT that a plan may add.
	maxRTT = time.Second
	// usualFor and quickFor are the default durations of scenario ttl. A user may
	// choose a duration from minFor to maxFor.
	usualFor, quickFor = time.Minute, 12 * time.Second
	minFor, maxFor     = time.Second, 6 * time.Hour
	// QuickTTL is the TTL of scenario takeover in a quick plan that sets no TTL. It
	// is short, because half of the modes wait for the TTL to expire a dozen times.
	QuickTTL = 3 * time.Second
	// quickRuns is the smallest number of runs that allows a confidence interval.
	quickRuns = 6
)

// maxHosts bounds the processes of one cell.
const maxHosts = 64

// DefaultPlan is what "lockbench run" measures without flags, or with --quick.
func DefaultPlan(quick bool) Plan {
	p := Plan{
		Scenarios: []string{"acquire"},
		Runs:      10,
		TTL:       10 * time.Second,
		For:       usualFor,
		WarmUp:    warmUp,
		Measure:   results.MeasuredFor(quick),
		Quick:     quick,
		MTLS:      true,
	}
	if quick {
		p.Runs, p.WarmUp, p.For = quickRuns, quickWarmUp, quickFor
	}
	return p
}

// filled returns the plan with zero values and the word all replaced by what they
// mean, and with repeated names removed.
func (p Plan) filled() Plan {
	for _, list := range []struct {
		names *[]string
		all   []string // empty if the list does not take the word all
	}{
		{&p.Backends, nil}, {&p.Scenarios, words("scenarios")}, {&p.Baselines, words("baselines")}, {&p.Modes, words("modes")},
	} {
		if len(list.all) > 0 && slices.Contains(*list.names, "all") {
			*list.names = list.all
		}
		*list.names = unique(*list.names)
	}
	p.Clients, p.Hosts, p.Keys, p.Hold, p.RTT = unique(p.Clients), unique(p.Hosts), unique(p.Keys), unique(p.Hold), unique(p.RTT)
	if slices.Equal(p.RTT, near) {
		p.RTT = nil
	}
	if p.Seed == 0 {
		p.Seed = randomSeed()
	}
	return p
}

// near is the list of RTTs of a plan that names none: no delay is added.
var near = []time.Duration{0}

// randomSeed is short enough to be typed again.
func randomSeed() uint64 { return rand.Uint64N(1e9) + 1 }

// unique drops repeated elements, and keeps the order.
func unique[T comparable](in []T) []T {
	var out []T
	for _, v := range in {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Check finds the parts of the plan that cannot be measured. Its errors are [*UsageError]s.
func (p Plan) Check() error {
	if err := cmp.Or(checkNames("scenarios", "scenario", p.Scenarios), checkNames("baselines", "baseline", p.Baselines)); err != nil {
		return err
	}
	for _, s := range p.Scenarios {
		sc, _ := measure.ByName(s)
		inside := slices.Equal(p.Hosts, []int{1})
		if sc.MinClients > 0 && len(p.Clients) > 0 && inside && slices.Max(p.Clients) < sc.MinClients {
			return usagef("scenario %s needs at least %d clients", s, sc.MinClients)
		}
	}
	if err := errors.Join(p.checkHold(), p.checkParts()); err != nil {
		return err
	}
	if !(p.Rate >= 0 && p.Rate <= 1e6) {
		return usagef("a rate of %v is not between 0 and 1000000 cycles/s", p.Rate)
	}
	if err := p.checkTakeover(); err != nil {
		return err
	}
	for _, each := range []struct {
		what    string
		numbers []int
		most    int
	}{
		{"hosts", p.Hosts, maxHosts}, {"clients", p.Clients, 4096}, {"keys", p.Keys, 65536}, {"runs", []int{p.Runs}, 1000},
	} {
		for _, n := range each.numbers {
			if n < 1 || n > each.most {
				return usagef("%d %s are not between 1 and %d", n, each.what, each.most)
			}
		}
	}
	switch {
	case len(p.Scenarios) == 0:
		return usagef("no scenario was named")
	case p.Env != "" && !slices.Contains(Environments(), p.Env):
		return unknown("environment", p.Env, Environments())
	case slices.Contains(p.Scenarios, "ttl") && (p.For < minFor || p.For > maxFor):
		return usagef("a time of %v for scenario ttl is not between %v and %v", p.For, minFor, maxFor)
	case p.Measure < minMeasure || p.Measure > maxMeasure:
		return usagef("a measured time of %v is not between %v and %v", p.Measure, minMeasure, maxMeasure)
	}
	return nil
}

// checkHold finds values of Hold and RTT that cannot be measured.
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

// asked returns the workload settings that the user gave for the scenarios.
func (p Plan) asked() measure.Overrides {
	return measure.Overrides{Clients: p.Clients, Hosts: p.Hosts, Keys: p.Keys, Hold: p.Hold, Quick: p.Quick, Modes: p.Modes, Candidates: p.Candidates}
}

// cell is one combination of scenario, backend or baseline, and workload.
type cell struct {
	measure.Workload
	subject  *subject
	scenario measure.Scenario
}

// section names the cell in the result folder.
func (c cell) section() results.Section {
	return results.Section{
		CellName: results.CellName{
			Scenario: c.scenario.Name, Backend: c.subject.Name, Mode: c.Mode, Hosts: c.Hosts, Clients: c.Clients, Keys: c.Keys, Hold: c.Hold, RTT: c.RTT,
		},
		Kind: c.subject.Kind, Fencing: c.subject.Fencing,
	}
}

// group holds what is the same in all cells that are compared with each other.
type group struct {
	measure.Workload
	scenario string
}

// rounds orders the cells of each run. Every run has every cell once, in an order
// that differs by run and depends on the seed alone. The subjects that are compared
// in one workload follow each other, in random order, so that they are measured under
// the same conditions.
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

// recorded returns the plan in the form of run.json.
func (p Plan) recorded(backends, baselines []string) results.Plan {
	if !slices.Contains(p.Scenarios, "ttl") {
		p.For = 0 // no cell uses it
	}
	return results.Plan{
		Seed: p.Seed, Backends: backends, Baselines: baselines, Scenarios: p.Scenarios,
		Clients: p.Clients, Hosts: p.Hosts, Keys: p.Keys, Hold: p.Hold, RTT: p.RTT, Rate: p.Rate, Runs: p.Runs, TTLms: p.TTL.Milliseconds(),
		WarmUpms: p.WarmUp.Milliseconds(), Measurems: p.Measure.Milliseconds(),
		Modes: p.Modes, Candidates: p.Candidates, TickMs: p.Tick.Milliseconds(), Parts: p.Parts, ForMs: p.For.Milliseconds(), Stress: p.Stress,
		MTLS: p.MTLS, Quick: p.Quick, Env: p.Env, OwnTargets: slices.Sorted(maps.Keys(p.own)),
		Commands: p.Commands, Config: p.configured(),
	}
}

// UsageError is the error of a plan that cannot be carried out as asked.
type UsageError struct{ Msg string }

func (e *UsageError) Error() string { return e.Msg }

func usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Suggest returns the end of an error about an unknown name: the known name that may be meant.
func Suggest(name string, known []string) string { return similar.Suggest(name, known) }

// unknown is the error for a name that is not among known. The argument what says what kind of
// thing the name stands for.
func unknown(what, name string, known []string) error {
	return usagef("there is no %s %q%s", what, name, similar.Suggest(name, known))
}

// maxCandidates bounds the candidates of one cell, each of which is a process.
const maxCandidates = 32

func (p Plan) checkTakeover() error {
	switch {
	case p.Candidates != 0 && (p.Candidates < 2 || p.Candidates > maxCandidates):
		return usagef("%d candidates are not between 2 and %d", p.Candidates, maxCandidates)
	case p.Tick < 0 || p.Tick > 0 && p.Tick < time.Millisecond:
		return usagef("a tick of %v is not at least 1ms", p.Tick)
	}
	return checkNames("modes", "mode of takeover", p.Modes)
}

// keepsData reports whether the throwaway server of a backend must keep its data over
// a restart. If a server forgot the leader, there would be two leaders.
func (p Plan) keepsData(backend string) bool {
	return kinds.Of(backend).Forgets && slices.Contains(p.Modes, "server-restart")
}
