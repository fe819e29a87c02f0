package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/host"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/results"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

const (
	// lockCount is how many locks one fault hits at once.
	lockCount = 20
	// TTL is that of the leases, where a fault asks for no other.
	TTL = 2 * time.Second
)

// Plan is what is to be done: every fault on every backend, in Rounds rounds.
type Plan struct {
	Backends []Backend
	Faults   []Fault
	Rounds   int
	// Seed decides at which moments of a renewal faults are injected.
	Seed uint64
	// FilesOnly leaves out the resources that need servers.
	FilesOnly bool
}

// Quick are the names of the faults of a quick run.
var Quick = []string{
	"freeze-host", "kill-host", "kill-plugin", "partition-holder", "restart-wiped", "failover", "clock-forward", "lost-reply",
}

// Cells are all combinations of a backend and a fault, and how many of them
// can be run here. A fault that is made for some of the backends is none of the
// others'.
func (p Plan) Cells() (all, runnable int) {
	for _, f := range p.Faults {
		for _, b := range p.Backends {
			if p.concerns(f, b) {
				all++
				if missing(b, f) == "" {
					runnable++
				}
			}
		}
	}
	return all, runnable
}

// missing says why a fault cannot be shown on a backend here, "" when it can.
func missing(b Backend, f Fault) string {
	if !kinds.Of(b.Name).Known() {
		return "lockbench has no throwaway servers for it"
	}
	return f.Fits(kinds.Of(b.Name))
}

// concerns reports whether a fault has anything to do with a backend. When it
// has nothing to do with any, all of them are told so.
func (p Plan) concerns(f Fault, b Backend) bool {
	does := func(b Backend) bool { return f.Concerns(kinds.Of(b.Name)) }
	return does(b) || !slices.ContainsFunc(p.Backends, does)
}

// Sink is told how a run goes on, from one goroutine.
type Sink interface {
	// Begin is called before each cell.
	Begin(label string)
	// Round is called with each round, and with each cell that cannot be run.
	Round(r results.Round) error
}

// Run carries out a plan. Cells that cannot be run are rounds that say what is
// missing; a round that fails says why, and the run goes on. It ends early
// only with ctx, or with an error of the sink.
func Run(ctx context.Context, p Plan, sink Sink) (err error) {
	scratch, err := servers.NewScratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	r := &runner{plan: p, sink: sink, dir: scratch.Dir(), began: proc.Now(), random: rand.New(rand.NewPCG(p.Seed, 0x73616665))}
	defer func() { err = errors.Join(err, r.servers.Close()) }()
	if err := r.openResources(ctx); err != nil {
		return err
	}
	for _, f := range p.Faults {
		for _, b := range p.Backends {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !p.concerns(f, b) {
				continue
			}
			sink.Begin(fmt.Sprintf("%s, %s", b.Name, f.Name))
			c := &cell{runner: r, backend: b, fault: f, ttl: cmp.Or(f.TTL, TTL)}
			if err := c.rounds(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

type runner struct {
	plan   Plan
	sink   Sink
	dir    string
	began  int64 // zero of all times
	random *rand.Rand

	resources host.Resources
	servers   servers.Nodes // of the resources
}

// openResources starts what holders write to. A server that is not installed
// leaves one kind of resource out.
func (r *runner) openResources(ctx context.Context) error {
	r.resources.Dir = r.dir
	if r.plan.FilesOnly {
		return nil
	}
	r.resources.Guards = map[string]string{}
	for _, s := range kinds.All() {
		if s.Guard == nil {
			continue
		}
		server, err := s.Guard.Start(ctx)
		if errors.Is(err, servers.ErrNotInstalled) {
			continue
		}
		if err != nil {
			return err
		}
		r.servers = append(r.servers, server)
		r.resources.Guards[s.Guard.Kind] = server.Addr()
	}
	return nil
}

// roundOf is a round of a fault on a backend, before it is gone through.
func roundOf(b Backend, f Fault) results.Round {
	r := results.Round{
		Backend: b.Name, Kind: results.KindPlugin, Fencing: b.Fencing, Fault: f.Name, Conditions: f.Produces, Control: f.Control,
		// A store that dies with its plugin loses its leases with it.
		Keeps: f.KeepsLeases && kinds.Of(b.Name).Lacks[servers.CapRival] == "",
	}
	if f.Config["fencing"] == "none" {
		r.Fencing = "none"
	}
	return r
}
