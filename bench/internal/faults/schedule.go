package faults

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// Schedule is one test run: hosts with callers that use locks, and events that harm or change
// hosts, networks or servers. A reproducer file holds one schedule.
type Schedule struct {
	Backend string `json:"backend"`
	Setting string `json:"setting,omitempty"` // the name of a setting of the store, see [servers.Kind]
	// Seed determines what callers do.
	Seed   uint64     `json:"seed"`
	Hosts  []HostPlan `json:"hosts"`
	Groups []Group    `json:"groups"`
	Events []Event    `json:"events"`
	// Length is the shortest time for which callers work.
	Length Duration `json:"length"`
}

// HostPlan is one host of a schedule.
type HostPlan struct {
	Wrapper string `json:"wrapper,omitempty"` // name of a script that starts the host's plugin; "" for none
	Callers []int  `json:"callers"`           // the number of callers for each group
}

// Group is a set of lock names, and a description of how callers use these locks.
type Group struct {
	Kind  results.Op `json:"kind"`
	Names int        `json:"names"`
	TTL   Duration   `json:"ttl"`
	Limit Bounds     `json:"limit"` // the time limit of a call
	Hold  Bounds     `json:"hold"`
	Pause Bounds     `json:"pause"`
	// AtLeast is the shortest time that a lock stays taken, even if its holder releases it earlier.
	// Value is the size, in bytes, of the value that a leader publishes.
	AtLeast Duration `json:"at_least,omitempty"`
	Value   int      `json:"value,omitempty"`
	// If Once is set, callers do not work by themselves. The action "ask" makes a host request all
	// locks of the group at once, and the action "give-back" makes it release them.
	Once bool `json:"once,omitempty"`
}

// Bounds are the shortest and the longest value of a duration that is drawn at random.
type Bounds [2]Duration

func (b Bounds) lasts() host.Range {
	return host.Range{time.Duration(b[0]), time.Duration(b[1])}
}

func bounds(least, most time.Duration) Bounds { return Bounds{Duration(least), Duration(most)} }

// uses are typical ways to use locks. A random schedule picks one of them for each group of locks.
var uses = []struct {
	kinds      []results.Op
	names      [2]int
	callers    [2]int // callers of one host
	ttls       []time.Duration
	limit      Bounds
	hold       Bounds
	pause      Bounds
	atLeast    []Duration
	values     []int // in bytes
	everywhere bool  // every host has callers
}{
	{ // a leader with standbys
		kinds: []results.Op{results.OpLead}, names: [2]int{1, 2}, callers: [2]int{1, 2}, everywhere: true,
		ttls: []time.Duration{2 * time.Second, 3 * time.Second, 5 * time.Second}, limit: bounds(time.Minute, time.Minute), hold: bounds(time.Second, 10*time.Second),
		values: []int{0, 100, 600}, // a value of 600 bytes is too long for a queue entry
	},
	{ // jobs that take a while
		kinds: []results.Op{results.OpLock, results.OpDo}, names: [2]int{1, 16}, callers: [2]int{1, 8},
		ttls:  []time.Duration{2 * time.Second, 5 * time.Second, maxTTL},
		limit: bounds(5*time.Second, 15*time.Second), hold: bounds(500*time.Millisecond, 4*time.Second), pause: bounds(0, 50*time.Millisecond),
		atLeast: []Duration{0, 0, 0, Duration(2 * time.Second)},
	},
	{ // one lock that all hosts want
		kinds: []results.Op{results.OpLock, results.OpDo}, names: [2]int{1, 2}, callers: [2]int{1, 4}, everywhere: true,
		ttls:  []time.Duration{2 * time.Second, 3 * time.Second, 5 * time.Second},
		limit: bounds(time.Second, 10*time.Second), hold: bounds(time.Millisecond, 200*time.Millisecond), pause: bounds(time.Millisecond, 100*time.Millisecond),
		atLeast: []Duration{0, 0, 0, Duration(100 * time.Millisecond)},
	},
	{ // requests that mostly miss their deadlines
		kinds: []results.Op{results.OpLock, results.OpTry}, names: [2]int{1, 4}, callers: [2]int{8, 64},
		ttls:  []time.Duration{2 * time.Second, maxTTL},
		limit: bounds(0, 49*time.Millisecond), hold: bounds(time.Millisecond, 20*time.Millisecond), pause: bounds(5*time.Millisecond, 50*time.Millisecond),
	},
}

// maxEventTime limits the duration of a random event, unless its action always lasts longer.
const maxEventTime = 7 * time.Second

// generator makes schedules for one backend. Two generators with the same seed make the same
// schedules.
type generator struct {
	backend string
	random  *rand.Rand
	picker  *actionPicker
	pool    int // the number of leases in the pool of a soak; 0 if the search is no soak
}

func newGenerator(backend string, seed uint64, settings []string, actions []Action) *generator {
	random := rand.New(rand.NewPCG(seed, hashOf(backend)))
	return &generator{backend: backend, random: random, picker: newActionPicker(backend, settings, actions, random)}
}

func (g *generator) next() Schedule {
	setting, actions := g.picker.next()
	s := Schedule{Backend: g.backend, Setting: setting, Seed: g.random.Uint64()}
	if g.pool > 0 {
		return g.soaked(s, actions)
	}
	hosts := 1 + slices.Index([]bool{
		kinds.Of(g.backend).InHost() || g.chance(0.08), g.chance(0.4), g.chance(0.5), g.chance(0.4), g.chance(0.3), g.chance(0.3), g.chance(0.5), true,
	}, true)
	for range hosts {
		h := HostPlan{}
		if needsWrapper(actions) {
			h.Wrapper = pick(g.random, wrappersThatStay)
		} else if g.chance(0.3) {
			h.Wrapper = pick(g.random, wrapperNames())
		}
		s.Hosts = append(s.Hosts, h)
	}
	for range 1 + g.random.IntN(3) {
		g.group(&s)
	}
	g.events(&s, actions)
	return s
}

func (g *generator) chance(p float64) bool { return g.random.Float64() < p }

func pick[T any](random *rand.Rand, of []T) T { return of[random.IntN(len(of))] }

func between(random *rand.Rand, b [2]int) int { return b[0] + random.IntN(b[1]-b[0]+1) }

func (g *generator) group(s *Schedule) {
	u := pick(g.random, uses)
	s.Groups = append(s.Groups, Group{
		Kind: pick(g.random, u.kinds), Names: between(g.random, u.names), TTL: Duration(pick(g.random, u.ttls)), Limit: u.limit, Hold: u.hold, Pause: u.pause,
	})
	group := &s.Groups[len(s.Groups)-1]
	if len(u.atLeast) > 0 {
		group.AtLeast = pick(g.random, u.atLeast)
	}
	if len(u.values) > 0 {
		group.Value = pick(g.random, u.values)
	}
	anybody := false
	for i := range s.Hosts {
		callers := 0
		if u.everywhere || g.chance(0.6) || !anybody && i == len(s.Hosts)-1 {
			callers, anybody = between(g.random, u.callers), true
		}
		s.Hosts[i].Callers = append(s.Hosts[i].Callers, callers)
	}
}

func (g *generator) events(s *Schedule, actions []Action) {
	overlap := g.chance(0.7)
	var at, over time.Duration
	for i, a := range actions {
		if i == burst {
			at = over
		}
		e := Event{Action: a.Name, Amount: math.Round(g.random.Float64()*1e6) / 1e6}
		switch a.On {
		case OnHost:
			e.Target = g.random.IntN(len(s.Hosts))
		case OnServer:
			e.Target = g.random.IntN(kinds.Of(g.backend).Setting(s.Setting).Servers)
		}
		e.Lasts = Duration(g.lasts(a.Lasts, s.Groups))
		e.At = Duration(at + g.upTo(time.Second))
		if g.chance(0.5) {
			e.Trigger, e.Of = pick(g.random, Triggers()), g.random.IntN(len(s.Hosts))
			if a.On == OnHost && g.chance(0.7) {
				e.Of = e.Target
			}
		}
		s.Events = append(s.Events, e)
		if over = max(over, time.Duration(e.At+e.Lasts)); !overlap {
			at = time.Duration(e.At+e.Lasts) + g.upTo(500*time.Millisecond)
		}
	}
	s.separate()
	for _, e := range s.Events {
		s.Length = max(s.Length, e.At+e.Lasts)
	}
	s.Length += Duration(500*time.Millisecond + g.upTo(time.Second))
}

// The lasts method draws a duration on a logarithmic scale. A third of the durations are about as
// long as a TTL, because leases survive shorter events, and much longer events show nothing more.
func (g *generator) lasts(s Span, groups []Group) time.Duration {
	most := min(s[1], maxEventTime)
	if most <= s[0] {
		return s[0]
	}
	ttl := time.Duration(pick(g.random, groups).TTL)
	if about := time.Duration((0.8 + 0.6*g.random.Float64()) * float64(ttl)); g.chance(1./3) && s[0] <= about && about <= most {
		return about.Round(time.Millisecond)
	}
	low, high := math.Log(float64(max(s[0], time.Millisecond))), math.Log(float64(most))
	return time.Duration(math.Exp(low + g.random.Float64()*(high-low))).Round(time.Millisecond)
}

func (g *generator) upTo(d time.Duration) time.Duration {
	return time.Duration(g.random.Int64N(int64(d))).Round(time.Millisecond)
}

type resourceKey struct {
	on     Target
	target int
	uses   Resource
}

// resourceKeyOf returns the resource that no other event may use during the event e and for some
// time after e (the result recovers). If there is no such resource, the result ok is false.
func resourceKeyOf(e Event) (t resourceKey, recovers Duration, ok bool) {
	a := e.action()
	if a.Uses == "" {
		return t, 0, false
	}
	if a.On == OnStore || a.Uses == UsesStore {
		return resourceKey{uses: a.Uses}, Duration(a.Recovers), true
	}
	return resourceKey{a.On, e.Target, a.Uses}, Duration(a.Recovers), true
}

// separate delays events so that no two events use the same resource at the same time.
func (s *Schedule) separate() {
	busy := map[resourceKey]Duration{}
	slices.SortStableFunc(s.Events, func(a, b Event) int { return int(a.At - b.At) })
	for i := range s.Events {
		e := &s.Events[i]
		key, recovers, ok := resourceKeyOf(*e)
		if !ok {
			continue
		}
		if until, used := busy[key]; used && e.At < until {
			e.At = until
		}
		busy[key] = e.At + e.Lasts + recovers
		if e.Trigger != "" {
			busy[key] += Duration(triggerTimeout)
		}
	}
}

// check returns an error if the schedule cannot be played. Users can write schedules by hand.
func (s *Schedule) check() error {
	if !kinds.Of(s.Backend).Known() {
		return errors.New(NoServers(s.Backend))
	}
	of := kinds.Of(s.Backend)
	setting := of.Setting(s.Setting)
	if setting.Servers == 0 {
		return fmt.Errorf("%s has no setting %q, but %v", s.Backend, s.Setting, of.SettingNames())
	}
	if len(s.Hosts) < 1 || len(s.Hosts) > 26 || len(s.Groups) < 1 || len(s.Groups) > 16 {
		return fmt.Errorf("%d hosts and %d groups of locks, not 1 to 26 and 1 to 16", len(s.Hosts), len(s.Groups))
	}
	for i, h := range s.Hosts {
		if len(h.Callers) != len(s.Groups) {
			return fmt.Errorf("host %s has callers for %d groups of %d", hostName(i), len(h.Callers), len(s.Groups))
		}
		if _, known := hostWrappers[h.Wrapper]; h.Wrapper != "" && !known {
			return fmt.Errorf("host %s has a wrapper %q, which is none of %v", hostName(i), h.Wrapper, wrapperNames())
		}
	}
	for i, g := range s.Groups {
		if g.Names < 1 || g.Names > 1000 || g.TTL <= 0 {
			return fmt.Errorf("group %d has %d names and a TTL of %v", i, g.Names, time.Duration(g.TTL))
		}
		if g.AtLeast < 0 || g.AtLeast > g.TTL || g.Value < 0 || g.Value > 64<<10 {
			return fmt.Errorf("group %d keeps its locks for %v at least, not 0 to its TTL of %v, or has values of %d bytes, not 0 to 65,536", i, time.Duration(g.AtLeast), time.Duration(g.TTL), g.Value)
		}
	}
	for _, e := range s.Events {
		a := e.action()
		if a.Name == "" {
			return fmt.Errorf("there is no action %q", e.Action)
		}
		if why := a.fits(s.Backend, s.Setting); why != "" {
			return fmt.Errorf("action %s on %s: %s", e.Action, s.Backend, why)
		}
		switch {
		case a.On == OnHost && (e.Target < 0 || e.Target >= len(s.Hosts)),
			a.On == OnServer && (e.Target < 0 || e.Target >= setting.Servers),
			e.Trigger != "" && (e.Of < 0 || e.Of >= len(s.Hosts)):
			return fmt.Errorf("action %s is done to %s %d, or at a trigger of host %d: there is none", e.Action, a.On, e.Target, e.Of)
		case e.Trigger != "" && !slices.Contains(Triggers(), e.Trigger):
			return fmt.Errorf("action %s: there is no trigger %q", e.Action, e.Trigger)
		}
	}
	return nil
}
