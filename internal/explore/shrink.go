package explore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/recorder"
)

// shrinker makes a schedule small that has broken a claim. No schedule is played
// the same way twice: a smaller one is taken if it breaks the same rule in two
// of three plays, and one without an action if it does in fewer, see [spare].
type shrinker struct {
	*explorer
	rule claim.Rule // that is broken

	mu    sync.Mutex
	what  string // in the play that showed it last
	plays int
}

// wanted is how many actions a person follows at a glance.
const wanted = 2

// spare is in how many of how many plays a schedule must break the rule that has
// one action less than one of n. A person reads actions first, and one that
// others have been added to by chance shows the rule seldom without them.
func spare(n int) (need, times int) {
	if n > burst {
		return 1, 3
	}
	return 2, 6
}

// shrink finds the smallest schedule that shows the violation of s.
func (x *explorer) shrink(ctx context.Context, s Schedule, v Violation) Scene {
	k := &shrinker{explorer: x, rule: v.Rule, what: v.What}
	trail, again := k.trail(ctx, s)
	if !again {
		x.log("%s: it did not show again in %d plays", x.backend.Name, k.plays)
		return Scene{Schedule: s, Rule: k.rule, What: k.what, Runs: chances}
	}
	scene := k.back(ctx, k.steady(ctx, k.sceneOf(ctx, trail[len(trail)-1])), trail)
	k.mu.Lock()
	defer k.mu.Unlock()
	x.log("%s: shrunk in %d plays to %d actions on %d hosts", x.backend.Name, k.plays, len(scene.Schedule.Events), len(scene.Schedule.Hosts))
	return scene
}

// chances is how often a schedule is played again to see whether it shows the
// violation at all.
const chances = 6

// trail makes s smaller step by step, until nothing can go or the time is over.
// The last one is the smallest. It reports whether s has shown the violation
// again: one that was seen by chance cannot be made smaller.
func (k *shrinker) trail(ctx context.Context, s Schedule) (trail []Schedule, again bool) {
	most := k.opts.Shrink
	if !k.opts.KeepGoing { // what is left of the time
		most = min(most, max(time.Until(k.until), most/4))
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if one, shown := k.anyOf(ctx, s.alone(), 2, 6); shown {
		s = one
	} else if shown, _ := k.shows(ctx, s, 1, chances); shown == 0 {
		return nil, false
	}
	trail = []Schedule{s}
	for smaller := true; smaller && ctx.Err() == nil; {
		smaller = false
		take := func(one Schedule) { s, trail, smaller = one, append(trail, one), true }
		for shown := true; shown && len(s.Events) > 0; {
			need, times := spare(len(s.Events))
			var less Schedule
			if less, shown = k.anyOf(ctx, s.withoutOne(), need, times); shown {
				take(less)
			}
		}
		for i := 0; ctx.Err() == nil; {
			candidates := smallerThan(s)
			if i >= len(candidates) {
				break
			}
			if shown, _ := k.shows(ctx, candidates[i], 2, 3); shown == 2 {
				take(candidates[i]) // what comes after it has its number now
			} else {
				i++
			}
		}
		if !smaller && len(s.Events) > 1 {
			if one, shown := k.anyOf(ctx, s.longer(), 2, 6); shown {
				take(one)
			}
		}
	}
	return trail, true
}

// anyOf plays all of candidates at once, and returns the first that shows.
func (k *shrinker) anyOf(ctx context.Context, candidates []Schedule, need, times int) (one Schedule, shown bool) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	numbers := make(chan int, len(candidates)) // -1: it does not
	for i, c := range candidates {
		go func() {
			if shown, _ := k.shows(ctx, c, need, times); shown < need {
				i = -1
			}
			numbers <- i
		}()
	}
	for range candidates {
		if i := <-numbers; i >= 0 {
			return candidates[i], true
		}
	}
	return one, false
}

// alone lists s with each of its events alone, and soon.
func (s Schedule) alone() []Schedule {
	var out []Schedule
	for i := range s.Events {
		one := s.clone()
		one.Events = one.Events[i : i+1]
		one.hurry()
		out = append(out, one)
	}
	return out
}

// longer lists s with each of its events alone that lasts three times as long: it
// may do without those that only helped it.
func (s Schedule) longer() []Schedule {
	out := s.alone()
	for i := range out {
		e := &out[i].Events[0]
		if a, err := actionOf(e.Action); err == nil {
			more := max(0, min(2*e.Lasts, Duration(a.Lasts[1])-e.Lasts))
			e.Lasts += more
			out[i].Length += more
		}
	}
	return out
}

// withoutOne lists s without each of its events.
func (s Schedule) withoutOne() []Schedule {
	var out []Schedule
	for i := range s.Events {
		less := s.clone()
		less.Events = slices.Delete(less.Events, i, i+1)
		out = append(out, less)
	}
	return out
}

// sceneOf plays s as often as a scene is.
func (k *shrinker) sceneOf(ctx context.Context, s Schedule) Scene {
	shown, plays := k.shows(ctx, s, k.opts.Runs, k.opts.Runs)
	k.mu.Lock()
	defer k.mu.Unlock()
	return Scene{Schedule: s, Rule: k.rule, What: k.what, Shown: shown, Runs: plays}
}

// steady finds a scene that shows oftener than one that seldom does: with more
// callers and names, or with an action that is repeated.
func (k *shrinker) steady(ctx context.Context, seldom Scene) Scene {
	best := seldom
	for _, candidate := range []Schedule{seldom.Schedule.crowded(), seldom.Schedule.repeated()} {
		if 2*best.Shown >= best.Runs || ctx.Err() != nil {
			break
		}
		if shown, _ := k.shows(ctx, candidate, 2, 3); shown == 2 {
			if scene := k.sceneOf(ctx, candidate); scene.Shown > best.Shown {
				best = scene
			}
		}
	}
	return best
}

// back finds a scene that shows oftener than one that seldom does among the
// schedules that it was made from, and have no more actions, by longer and
// longer steps: one that was taken by luck, in two of three plays, spoils all
// that come after it.
func (k *shrinker) back(ctx context.Context, seldom Scene, trail []Schedule) Scene {
	best := seldom
	for step := 1; step < len(trail) && 2*best.Shown < best.Runs && ctx.Err() == nil; step *= 2 {
		before := trail[len(trail)-1-step]
		if len(before.Events) > max(len(seldom.Schedule.Events), wanted) {
			break
		}
		if scene := k.sceneOf(ctx, before); scene.Shown > best.Shown {
			best = scene
		}
	}
	return best
}

// shows plays s up to times times, on all players that are idle, and counts how
// often it breaks the same rule, up to need, in how many plays. It ends as soon
// as that is reached or cannot be.
func (k *shrinker) shows(ctx context.Context, s Schedule, need, times int) (shown, plays int) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	played := make(chan *Violation, times) // nil: not broken
	for range times {
		go func() { played <- k.breaks(ctx, s, k.rule) }()
	}
	for left := times; left > 0; left-- {
		v := <-played
		if ctx.Err() != nil {
			continue // the players are needed for what comes next
		}
		plays++
		if v != nil {
			shown++
		}
		k.note(v)
		if need < times && (shown == need || shown+left-1 < need) {
			enough()
		}
	}
	return shown, plays
}

// note counts a play, and what it has shown.
func (k *shrinker) note(v *Violation) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plays++
	if v != nil {
		k.what = v.What
	}
}

// breaks plays s, and returns the violation of rule, if there is one.
func (x *explorer) breaks(ctx context.Context, s Schedule, rule claim.Rule) *Violation {
	h, err := x.play(ctx, s)
	if err != nil {
		return nil
	}
	v := judgeOf(h, x.backend)
	if i := slices.IndexFunc(v.violations, func(v Violation) bool { return v.Rule == rule }); i >= 0 {
		return &v.violations[i]
	}
	return nil
}

// smallerThan lists schedules with the events of s and less of everything else,
// those that lack the most first.
func smallerThan(s Schedule) []Schedule {
	var out []Schedule
	add := func(change func(*Schedule) bool) {
		c := s.clone()
		if change(&c) {
			out = append(out, c)
		}
	}
	add((*Schedule).hurry)
	add((*Schedule).removeBystanders)
	for i := range s.Groups {
		add(func(c *Schedule) bool { return c.removeGroup(i) })
	}
	for i := range s.Hosts {
		add(func(c *Schedule) bool { return c.removeHost(i) })
	}
	add(func(c *Schedule) bool { return c.everyGroup(func(g *Group) bool { return lower(&g.Names, 1) }) })
	add((*Schedule).removeCallers)
	for i := range s.Hosts {
		for g := range s.Groups {
			add(func(c *Schedule) bool { return lower(&c.Hosts[i].Callers[g], 1) })
		}
		add(func(c *Schedule) bool {
			had := c.Hosts[i].Wrapper != ""
			c.Hosts[i].Wrapper = ""
			return had
		})
	}
	for i := range s.Events {
		add(func(c *Schedule) bool {
			had := c.Events[i].Moment != ""
			c.Events[i].Moment, c.Events[i].Of = "", 0
			return had
		})
		add(func(c *Schedule) bool { return c.shorten(i) })
	}
	return out
}

// hurry lets the events begin within half a second, and ends soon after them.
func (s *Schedule) hurry() bool {
	const soon, after = Duration(500 * time.Millisecond), Duration(1500 * time.Millisecond)
	first, last := s.Length, Duration(0)
	for _, e := range s.Events {
		first, last = min(first, e.At), max(last, e.At+e.Lasts)
	}
	early := max(0, first-soon)
	if len(s.Events) == 0 || early == 0 && s.Length <= last+after {
		return false
	}
	for i := range s.Events {
		s.Events[i].At -= early
	}
	s.Length = min(s.Length, last+after) - early
	return true
}

// removeBystanders removes the hosts that no event concerns, but one.
func (s *Schedule) removeBystanders() bool {
	spared, removed := false, false
	for n := len(s.Hosts) - 1; n >= 0; n-- {
		c := s.clone()
		if !c.removeHost(n) {
			continue
		}
		if spared {
			*s, removed = c, true
		}
		spared = true
	}
	return removed
}

// removeCallers leaves one caller of each group on each host.
func (s *Schedule) removeCallers() bool {
	removed := false
	for i := range s.Hosts {
		for g := range s.Groups {
			removed = lower(&s.Hosts[i].Callers[g], 1) || removed
		}
	}
	return removed
}

// crowded is s with more callers and names.
func (s Schedule) crowded() Schedule {
	c := s.clone()
	for i := range c.Hosts {
		for g := range c.Groups {
			c.Hosts[i].Callers[g] = min(4*c.Hosts[i].Callers[g], 64)
		}
	}
	for g := range c.Groups {
		if c.Groups[g].Kind != recorder.KindLead {
			c.Groups[g].Names = min(4*c.Groups[g].Names, 64)
		}
	}
	return c
}

// repeated is s in which a single event happens three times.
func (s Schedule) repeated() Schedule {
	c := s.clone()
	for len(c.Events) > 0 && len(c.Events) < burst && len(s.Events) == 1 {
		e := c.Events[len(c.Events)-1]
		e.At += e.Lasts + Duration(2*time.Second)
		c.Events = append(c.Events, e)
		c.Length += e.Lasts + Duration(2*time.Second)
	}
	return c
}

// lower makes a number smaller, if it is greater.
func lower(n *int, to int) bool {
	if *n <= to {
		return false
	}
	*n = to
	return true
}

func (s *Schedule) clone() Schedule {
	c := *s
	c.Events = slices.Clone(s.Events)
	c.Groups = slices.Clone(s.Groups)
	c.Hosts = slices.Clone(s.Hosts)
	for i := range c.Hosts {
		c.Hosts[i].Callers = slices.Clone(c.Hosts[i].Callers)
	}
	return c
}

// removeHost removes one to which nothing happens.
func (s *Schedule) removeHost(n int) bool {
	if len(s.Hosts) == 1 {
		return false
	}
	for i := range s.Events {
		e := &s.Events[i]
		a, err := actionOf(e.Action)
		if err != nil || a.On == OnHost && e.Target == n || e.Moment != "" && e.Of == n {
			return false
		}
		if a.On == OnHost && e.Target > n {
			e.Target--
		}
		if e.Moment != "" && e.Of > n {
			e.Of--
		}
	}
	s.Hosts = slices.Delete(s.Hosts, n, n+1)
	return true
}

func (s *Schedule) removeGroup(n int) bool {
	if len(s.Groups) == 1 {
		return false
	}
	s.Groups = slices.Delete(s.Groups, n, n+1)
	for i := range s.Hosts {
		s.Hosts[i].Callers = slices.Delete(s.Hosts[i].Callers, n, n+1)
	}
	return true
}

func (s *Schedule) everyGroup(change func(*Group) bool) bool {
	any := false
	for i := range s.Groups {
		any = change(&s.Groups[i]) || any
	}
	return any
}

// shorten halves what one event lasts, and what comes after it.
func (s *Schedule) shorten(n int) bool {
	const least = 20 * time.Millisecond
	e := &s.Events[n]
	a, err := actionOf(e.Action)
	half := Duration(max(time.Duration(e.Lasts)/2, a.Lasts[0]).Round(10 * time.Millisecond))
	if err != nil || time.Duration(e.Lasts) < least || half >= e.Lasts {
		return false
	}
	s.Length = max(s.Length-(e.Lasts-half), Duration(time.Second))
	e.Lasts = half
	return true
}
