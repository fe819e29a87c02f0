package faults

import (
	"slices"
	"time"
)

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
