package faults

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/internal/claim"
)

// shrinker shrinks a schedule that has broken a claim. Chance decides whether a schedule breaks the
// claim when it is played. So a smaller schedule is accepted if two of three plays break the same
// rule. To remove an action, a smaller share of the plays is enough; see [removalThreshold].
type shrinker struct {
	*searcher
	rule claim.Rule // the broken rule

	mu    sync.Mutex
	what  string // the violation in the last play that broke the rule
	plays int
}

// wanted is the number of actions that people grasp at a glance. A reproducer need not have fewer.
const wanted = 2

// removalThreshold says in how many plays (need), out of how many (times), a schedule without one
// of its n actions must break the rule. It is low, because fewer actions help a reader most.
func removalThreshold(n int) (need, times int) {
	if n > burst {
		return 1, 3
	}
	return 2, 6
}

func (x *searcher) shrink(ctx context.Context, s Schedule, v check.Violation) Reproducer {
	k := &shrinker{searcher: x, rule: v.Rule, what: v.What}
	trail, again := k.trail(ctx, s)
	if !again {
		x.log("%s: it did not show again in %d plays", x.backend.Name, k.plays)
		return Reproducer{Schedule: s, Rule: k.rule, What: k.what, Runs: chances}
	}
	reproducer := k.back(ctx, k.reproducerOf(ctx, trail[len(trail)-1]), trail)
	k.mu.Lock()
	defer k.mu.Unlock()
	x.log("%s: shrunk in %d plays to %d actions on %d hosts", x.backend.Name, k.plays, len(reproducer.Schedule.Events), len(reproducer.Schedule.Hosts))
	return reproducer
}

// chances is the number of plays in which a schedule must break its rule at least once more.
const chances = 6

// trail makes the schedule s smaller step by step, until nothing more can be removed or the time is
// over. It returns the schedule of each step, the smallest last. If s does not break the rule again
// when it is played, trail makes no step and returns again=false.
func (k *shrinker) trail(ctx context.Context, s Schedule) (trail []Schedule, again bool) {
	most := k.opts.Shrink
	if !k.opts.KeepGoing { // the limit is the rest of the search's time, but at least a quarter of Shrink
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
			need, times := removalThreshold(len(s.Events))
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
				take(candidates[i]) // then try number i of the next list, which is another candidate
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

// anyOf plays all candidates at once. It returns the first candidate that breaks the rule in as
// many plays as the parameter need says. The parameter times limits the plays of each candidate.
func (k *shrinker) anyOf(ctx context.Context, candidates []Schedule, need, times int) (one Schedule, shown bool) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	numbers := make(chan int, len(candidates)) // -1 for a candidate that breaks the rule too seldom
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

func (k *shrinker) reproducerOf(ctx context.Context, s Schedule) Reproducer {
	shown, plays := k.shows(ctx, s, k.opts.Runs, k.opts.Runs)
	k.mu.Lock()
	defer k.mu.Unlock()
	return Reproducer{Schedule: s, Rule: k.rule, What: k.what, Shown: shown, Runs: plays}
}

// The back method looks for a better schedule if the smallest one seldom breaks its rule. It goes
// back in trail, by longer and longer steps, to a schedule that breaks the rule more often. That
// schedule has at most as many events as the smallest one, or [wanted] if that is more. Going back
// helps if a step was accepted by luck: all schedules after that step may seldom break the rule.
func (k *shrinker) back(ctx context.Context, seldom Reproducer, trail []Schedule) Reproducer {
	best := seldom
	for step := 1; step < len(trail) && 2*best.Shown < best.Runs && ctx.Err() == nil; step *= 2 {
		before := trail[len(trail)-1-step]
		if len(before.Events) > max(len(seldom.Schedule.Events), wanted) {
			break
		}
		if reproducer := k.reproducerOf(ctx, before); reproducer.Shown > best.Shown {
			best = reproducer
		}
	}
	return best
}

// The shows method plays s on all idle players; the parameter times is the number of plays. It
// returns how many plays broke the rule, and how many were completed. If need is less than times,
// it stops when enough plays (need) have broken the rule, or when too few plays are left.
func (k *shrinker) shows(ctx context.Context, s Schedule, need, times int) (shown, plays int) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	played := make(chan bool, times)
	for range times {
		go func() { played <- k.breaks(ctx, s) }()
	}
	for left := times; left > 0; left-- {
		broken := <-played
		if ctx.Err() != nil {
			continue // a play that was interrupted does not count
		}
		plays++
		if broken {
			shown++
		}
		if need < times && (shown == need || shown+left-1 < need) {
			enough()
		}
	}
	return shown, plays
}

func (k *shrinker) breaks(ctx context.Context, s Schedule) bool {
	h, err := k.play(ctx, s)
	if err != nil {
		return false
	}
	violations := h.judge(k.backend).Violations
	i := slices.IndexFunc(violations, func(v check.Violation) bool { return v.Rule == k.rule })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plays++
	if i < 0 {
		return false
	}
	k.what = violations[i].What
	return true
}

// smallerThan returns schedules with the same actions as s, each with one change that simplifies s.
// The change removes hosts, groups, callers, names, a wrapper or a trigger, or it saves time.
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
	add((*Schedule).removeNames)
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
			had := c.Events[i].Trigger != ""
			c.Events[i].Trigger, c.Events[i].Of = "", 0
			return had
		})
		add(func(c *Schedule) bool { return c.shorten(i) })
	}
	return out
}

// hurry moves all events to earlier times, so that the first event comes in the schedule's first
// half second. It also makes the schedule end soon after the last event.
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

// removeBystanders removes all hosts that no event concerns, except one of them.
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

func (s *Schedule) removeCallers() bool {
	removed := false
	for i := range s.Hosts {
		for g := range s.Groups {
			removed = lower(&s.Hosts[i].Callers[g], 1) || removed
		}
	}
	return removed
}

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

// removeHost removes host number n, unless it is the only host or an event concerns it.
func (s *Schedule) removeHost(n int) bool {
	if len(s.Hosts) == 1 {
		return false
	}
	for i := range s.Events {
		e := &s.Events[i]
		a := e.action()
		if a.On == OnHost && e.Target == n || e.Trigger != "" && e.Of == n {
			return false
		}
		if a.On == OnHost && e.Target > n {
			e.Target--
		}
		if e.Trigger != "" && e.Of > n {
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

func (s *Schedule) removeNames() bool {
	removed := false
	for i := range s.Groups {
		removed = lower(&s.Groups[i].Names, 1) || removed
	}
	return removed
}

func (s *Schedule) shorten(n int) bool {
	const least = 20 * time.Millisecond
	e := &s.Events[n]
	half := Duration(max(time.Duration(e.Lasts)/2, e.action().Lasts[0]).Round(10 * time.Millisecond))
	if time.Duration(e.Lasts) < least || half >= e.Lasts {
		return false
	}
	s.Length = max(s.Length-(e.Lasts-half), Duration(time.Second))
	e.Lasts = half
	return true
}

// The alone method returns, for each event, a copy of s with only this event, at an early time.
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

// longer() returns a copy of s for each event. The copy has only this event, up to three times as
// long, because a longer event may break the rule by itself.
func (s Schedule) longer() []Schedule {
	out := s.alone()
	for i := range out {
		e := &out[i].Events[0]
		more := max(0, min(2*e.Lasts, Duration(e.action().Lasts[1])-e.Lasts))
		e.Lasts += more
		out[i].Length += more
	}
	return out
}

func (s Schedule) withoutOne() []Schedule {
	var out []Schedule
	for i := range s.Events {
		less := s.clone()
		less.Events = slices.Delete(less.Events, i, i+1)
		out = append(out, less)
	}
	return out
}
