package explore

import (
	"context"
	"slices"
	"time"
)

// tries is how often a smaller schedule may be played until it shows the
// violation: no schedule is played the same way twice.
const tries = 3

// shrinker makes a schedule small that has broken a claim.
type shrinker struct {
	*explorer
	rule  Violation
	until time.Time
	plays int
}

// shrink finds the smallest schedule that shows the violation of s.
func (x *explorer) shrink(ctx context.Context, s Schedule, v Violation) Scene {
	k := &shrinker{explorer: x, rule: v, until: time.Now().Add(x.opts.Shrink)}
	small := s
	for smaller := true; smaller; {
		smaller = false
		for _, candidate := range smallerThan(small) {
			if ctx.Err() != nil || time.Now().After(k.until) {
				break
			}
			if seen, shown := k.shows(ctx, candidate, tries); shown {
				small, k.rule, smaller = candidate, seen, true
				break
			}
		}
	}
	scene := Scene{Schedule: small, Rule: v.Rule, What: k.rule.What}
	for range x.opts.Runs {
		if ctx.Err() != nil {
			break
		}
		scene.Runs++
		if seen, shown := k.shows(ctx, small, 1); shown {
			scene.Shown++
			scene.What = seen.What
		}
	}
	x.opts.Log("%s: shrunk in %d plays to %d actions on %d hosts", x.backend.Name, k.plays, len(small.Events), len(small.Hosts))
	return scene
}

// shows plays s up to times times, until the same rule is broken.
func (k *shrinker) shows(ctx context.Context, s Schedule, times int) (Violation, bool) {
	for range times {
		k.plays++
		h, err := k.player.play(ctx, s)
		if err != nil {
			k.player.close()
			continue
		}
		v := judgeOf(h, k.backend)
		i := slices.IndexFunc(v.violations, func(v Violation) bool { return v.Rule == k.rule.Rule })
		if i >= 0 {
			return v.violations[i], true
		}
	}
	return Violation{}, false
}

// smallerThan lists schedules with one thing less than s, the most first.
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
	for i := range s.Hosts {
		add(func(c *Schedule) bool { return c.removeHost(i) })
	}
	for i := range s.Groups {
		add(func(c *Schedule) bool { return c.removeGroup(i) })
	}
	add(func(c *Schedule) bool { return c.everyGroup(func(g *Group) bool { return lower(&g.Names, 1) }) })
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
