package explore

import (
	"context"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/recorder"
)

// shrinker makes a schedule small that has broken a claim. No schedule is played
// the same way twice: a smaller one is taken if it breaks the same rule in two
// of three plays, and one without an action if it does in fewer, see [spare].
type shrinker struct {
	*explorer
	seen  Violation
	until time.Time
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
	k := &shrinker{explorer: x, seen: v, until: time.Now().Add(x.opts.Shrink)}
	small := k.alone(ctx, s)
	trail := []Schedule{small}
	for smaller := true; smaller; {
		smaller = false
		for i := 0; ctx.Err() == nil && time.Now().Before(k.until); {
			candidates := smallerThan(small)
			if i >= len(candidates) {
				break
			}
			need, times := 2, 3
			if len(candidates[i].Events) < len(small.Events) {
				need, times = spare(len(small.Events))
			}
			if k.shows(ctx, candidates[i], need, times) >= need {
				small, smaller = candidates[i], true // what comes after it has its number now
				trail = append(trail, small)
			} else {
				i++
			}
		}
	}
	scene := k.back(ctx, k.steady(ctx, k.sceneOf(ctx, small)), trail)
	x.log("%s: shrunk in %d plays to %d actions on %d hosts", x.backend.Name, k.plays, len(scene.Schedule.Events), len(scene.Schedule.Hosts))
	return scene
}

// alone finds one action of s that shows the violation without the others, and
// soon. It returns s if there is none.
func (k *shrinker) alone(ctx context.Context, s Schedule) Schedule {
	if len(s.Events) < 2 {
		return s
	}
	for i := range s.Events {
		one := s.clone()
		one.Events = one.Events[i : i+1]
		one.hurry()
		if k.shows(ctx, one, 2, 3) == 2 {
			return one
		}
	}
	return s
}

// sceneOf plays s as often as a scene is.
func (k *shrinker) sceneOf(ctx context.Context, s Schedule) Scene {
	before := k.plays
	shown := k.shows(ctx, s, k.opts.Runs, k.opts.Runs)
	return Scene{Schedule: s, Rule: k.seen.Rule, What: k.seen.What, Shown: shown, Runs: k.plays - before}
}

// steady finds a scene that shows oftener than one that seldom does: with more
// callers and names, or with an action that is repeated.
func (k *shrinker) steady(ctx context.Context, seldom Scene) Scene {
	best := seldom
	for _, candidate := range []Schedule{seldom.Schedule.crowded(), seldom.Schedule.repeated()} {
		if 2*best.Shown >= best.Runs || ctx.Err() != nil {
			break
		}
		if k.shows(ctx, candidate, 2, 3) == 2 {
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
// often it breaks the same rule, up to need. It ends as soon as that is reached
// or cannot be.
func (k *shrinker) shows(ctx context.Context, s Schedule, need, times int) (shown int) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	rule := k.seen.Rule
	played := make(chan *Violation, times) // nil: not broken
	for range times {
		go func() { played <- k.breaks(ctx, s, rule) }()
	}
	for left := times; left > 0; left-- {
		v := <-played
		if ctx.Err() != nil {
			continue // the players are needed for what comes next
		}
		k.plays++
		if v != nil {
			k.seen = *v
			shown++
		}
		if need < times && (shown == need || shown+left-1 < need) {
			enough()
		}
	}
	return shown
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

// smallerThan lists schedules with less than s, those that lack the most first.
func smallerThan(s Schedule) []Schedule {
	var out []Schedule
	add := func(change func(*Schedule) bool) {
		c := s.clone()
		if change(&c) {
			out = append(out, c)
		}
	}
	for i := range s.Events {
		add(func(c *Schedule) bool { c.Events = slices.Delete(c.Events, i, i+1); return true })
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
