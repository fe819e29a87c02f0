package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// A process may use this much more at the end than at the first look. A plugin
// collects its garbage at its own times, and its largest heap stays resident for
// minutes: one with 5 MB in objects goes from 35 MB to 70 when a pool is given back,
// and another from 41 to 106 when its servers have been started again. Its pools of
// connections grow when the store is slow, to a bound: 48 at most.
const (
	moreGoroutines  = 16
	moreDescriptors = 56
	moreHeap        = 2 << 20
	moreResident    = 80 << 20
)

// Allowance says in one line how much more a process may use.
func Allowance() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d MB of heap, %d MB resident", moreGoroutines, moreDescriptors, moreHeap>>20, moreResident>>20)
}

// Usage is the resources used by one process of a soak at rest, after its first
// schedule and after its last.
type Usage struct {
	Who   string   `json:"who"` // "host A", "plugin of host A"
	Pid   int      `json:"pid"`
	First host.Use `json:"first"` // at rest
	Last  host.Use `json:"last"`
}

// Grown says which figures have grown by more than [Allowance]; "" for none.
func (u Usage) Grown() string {
	for _, one := range []struct {
		what        string
		first, last int
		more        int
	}{
		{"goroutines", u.First.Goroutines, u.Last.Goroutines, moreGoroutines},
		{"descriptors", u.First.Descriptors, u.Last.Descriptors, moreDescriptors},
		{"bytes of heap", int(u.First.Heap), int(u.Last.Heap), moreHeap},
		{"bytes resident", int(u.First.Resident), int(u.Last.Resident), moreResident},
	} {
		if one.last > one.first+one.more {
			return fmt.Sprintf("%s %d: %d %s, then %d", u.Who, u.Pid, one.first, one.what, one.last)
		}
	}
	return ""
}

// soaked is a schedule of a soak, for the hosts of the schedule before. The last host
// has one caller for each lease of the pool, and these hold for long.
func (g *generator) soaked(s Schedule, actions []Action) Schedule {
	s.Hosts = make([]HostPlan, soakHosts)
	if kinds.Of(g.backend).InHost() {
		s.Hosts = s.Hosts[:1]
	}
	g.group(&s)
	g.group(&s)
	s.Groups = append(s.Groups, Group{
		Kind: results.OpLock, Names: g.pool, TTL: Duration(maxTTL), Limit: bounds(time.Minute, time.Minute), Hold: bounds(maxTTL/2, 2*maxTTL),
	})
	for i := range s.Hosts {
		callers := 0
		if i == len(s.Hosts)-1 {
			callers = g.pool
		}
		s.Hosts[i].Callers = append(s.Hosts[i].Callers, callers)
	}
	g.events(&s, actions)
	return s
}

// soakHosts is how many hosts live in a soak, where the store has room for several.
const soakHosts = 3

// soakable are the actions that leave reusable servers. After a jump of their clocks
// servers are started anew, which would end the soak of their hosts.
func soakable(actions []Action) []Action {
	return slices.DeleteFunc(actions, func(a Action) bool {
		return a.Wrapped || slices.Contains(a.Needs, servers.CapClock)
	})
}

// use reads the resources that each host and its plugin use when no lock is held. It
// reads nothing where the system has no figures.
func (p *player) use(ctx context.Context, w *System) error {
	for _, h := range w.Hosts {
		if !h.Alive() {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, endTimeout)
		own, plugin, err := h.Use(bounded)
		cancel()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("host %s is looked at: %w", h.Name(), err)
		}
		p.used("host "+h.Name(), h.Pid(), own)
		p.used("plugin of host "+h.Name(), h.PluginPid(), plugin)
	}
	return nil
}

func (all *players) used(who string, pid int, u host.Use) {
	all.mu.Lock()
	defer all.mu.Unlock()
	i := slices.IndexFunc(all.uses, func(l *Usage) bool { return l.Pid == pid })
	if i < 0 {
		i = len(all.uses)
		all.uses = append(all.uses, &Usage{Who: who, Pid: pid, First: u})
	}
	all.uses[i].Last = u
}

// finish ends the hosts of a soak, and adds their leftovers and the processes that
// have grown to the findings. It does not judge growth in a short soak, where the
// first uncollected garbage is most of it.
func (x *searcher) finish() {
	x.found.Uses = x.uses
	for range cap(x.idle) {
		p := <-x.idle
		x.found.Left = append(x.found.Left, leave(p.hosts)...)
		p.hosts = nil
		x.idle <- p
	}
	for _, u := range x.found.Uses {
		if grown := u.Grown(); grown != "" && x.opts.Length >= growthAfter {
			x.found.Left = append(x.found.Left, grown)
		}
	}
}

// growthAfter is the least length of a soak in which growth is judged.
const growthAfter = time.Minute
