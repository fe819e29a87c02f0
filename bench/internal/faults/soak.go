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

// These constants limit the growth of a process from its first reading to the end of a soak.
// moreResident is large, because the kernel takes memory back from a plugin only after minutes. A
// plugin with 5 MB in objects grew from 35 MB to 70 MB when it released many leases.
// moreDescriptors is large, because a plugin opens up to 48 connections if the store is slow.
const (
	moreGoroutines  = 16
	moreDescriptors = 56
	moreHeap        = 2 << 20
	moreResident    = 80 << 20
)

// Allowance returns one line with the limits for the growth of a process during a soak.
func Allowance() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d MB of heap, %d MB resident", moreGoroutines, moreDescriptors, moreHeap>>20, moreResident>>20)
}

// Usage says how much of each resource a process of a soak used after its first schedule, and how
// much after its last schedule. The process held no lock at these times.
type Usage struct {
	Who   string   `json:"who"` // "host A", "plugin of host A"
	Pid   int      `json:"pid"`
	First host.Use `json:"first"` // read while no lock was held
	Last  host.Use `json:"last"`  // the last reading, but with the smallest Resident of the last few readings

	resident [looks]uint64
	looked   int
}

// looks is the number of latest readings whose smallest Resident counts. Garbage stays in memory
// for a minute or two, so only one or two readings contain it. Leaked memory is in all readings.
const looks = 5

// Grown describes the first resource whose use has grown beyond [Allowance], or returns "".
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

// soaked gives the last host g.pool more callers. Each of them holds one lock for a long time.
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

const soakHosts = 3

// soakable returns the actions that a soak can use. It leaves out actions that need wrapper scripts
// and actions that move clocks, because both kinds need new hosts or new servers.
func soakable(actions []Action) []Action {
	return slices.DeleteFunc(actions, func(a Action) bool {
		return a.Wrapped || slices.Contains(a.Needs, servers.CapClock)
	})
}

// The use method reads which resources living hosts and their plugins use while they hold no lock.
// It skips a host if the operating system has no figures about the host or its plugin.
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
	l := all.uses[i]
	l.resident[l.looked%looks] = u.Resident
	l.looked++
	u.Resident = slices.Min(l.resident[:min(l.looked, looks)])
	l.Last = u
}

// finish ends the hosts of a soak, and lists in x.found.Left what they leave and which processes
// have grown. It ignores growth in a short soak, because such growth is mostly uncollected garbage.
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

const growthAfter = time.Minute
