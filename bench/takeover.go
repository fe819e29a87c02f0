package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/measure"
	"github.com/lockbench/lockbench/internal/results"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
	"github.com/lockbench/lockbench/internal/similar"
)

// takeoverName is the scenario that has modes, candidates and a tick.
const takeoverName = "takeover"

// maxCandidates bounds the processes of one cell.
const maxCandidates = 32

func (p Plan) checkTakeover() error {
	if len(p.Modes) > 0 || p.Candidates != 0 || p.Tick != 0 {
		if !slices.Contains(p.Scenarios, takeoverName) {
			return usagef("modes, candidates and tick are of scenario %s, which is not among %v", takeoverName, p.Scenarios)
		}
	}
	for _, m := range p.Modes {
		if !slices.Contains(measure.Modes(), m) {
			return usagef("%s has no mode %q%s", takeoverName, m, similar.Suggest(m, measure.Modes()))
		}
	}
	switch {
	case p.Candidates != 0 && (p.Candidates < 2 || p.Candidates > maxCandidates):
		return usagef("%d candidates are not between 2 and %d", p.Candidates, maxCandidates)
	case p.Tick < 0 || p.Tick > 0 && p.Tick < time.Millisecond:
		return usagef("a tick of %v is not at least 1ms", p.Tick)
	}
	return nil
}

// keepsData reports whether the throwaway server of a backend has to keep its
// data when it is started again: a leader that it forgot would be one of two.
func (p Plan) keepsData(backend string) bool {
	return kinds.Of(backend).Forgets && slices.Contains(p.Modes, "server-restart")
}

// ttlFor is the TTL for a backend. Takeover alone, where it is varied down to
// what a backend can do, raises one below the minimum and says so.
func (p Plan) ttlFor(d plugin.Description) (ttl time.Duration, note string) {
	least, err := time.ParseDuration(d.Properties.TTLMin)
	if err != nil || p.TTL >= least || p.TTL < time.Millisecond || !slices.Equal(p.Scenarios, []string{takeoverName}) {
		return p.TTL, ""
	}
	return least, fmt.Sprintf("%s has a TTL of %v, its minimum, instead of %v", d.Name, least, p.TTL)
}

// notPossible says why a cell of processes cannot be measured, and of what; ""
// when it can.
func (r *runner) notPossible(sub *subject, sc measure.Scenario, workload measure.Workload) string {
	switch {
	case !sc.Processes && sub.Kind == results.KindBaseline:
		return "the baselines, which run in lockbench's own process,"
	case sub.Scope == string(driver.ScopeHost):
		return sub.Name + ", whose store belongs to one host process and is not seen by others,"
	case !sc.Processes:
		return ""
	case sub.Kind == results.KindBaseline && r.plan.Quick:
		return "with --quick the baselines, whose takeovers take a TTL each,"
	}
	in := r.input(cell{Workload: workload, subject: sub, scenario: sc}, 0)
	if why := measure.NotPossible(in); why != "" {
		return fmt.Sprintf("%s in mode %s, %s,", sub.Name, workload.Mode, why)
	}
	if sub.Kind == results.KindBaseline && r.plan.Tick > 0 {
		lock, err := sub.locker.Lock("tick", in.TTL)
		if _, ok := lock.(load.Trier); err != nil || !ok {
			return sub.Name + ", which cannot ask just once at every tick,"
		}
	}
	return ""
}

// label names a cell within its subject.
func (c cell) label() string {
	out := c.scenario.Name
	if c.Mode != "" {
		out += " " + c.Mode
	}
	if c.Hosts > 0 {
		out += fmt.Sprintf(", hosts %d", c.Hosts)
	}
	if c.scenario.Processes { // its clients are locks
		return out
	}
	return fmt.Sprintf("%s, clients %d", out, c.Clients)
}

// harmed is the server that may be harmed: one of several, the same all the time,
// because one that was restarted may have no vote for a while, and with three of
// five in that nobody could lead. It is nil without servers of ours.
func harmed(s *servers.Environment) measure.Server {
	switch {
	case len(s.Servers) > 0:
		return localServer{s.Servers[rand.IntN(len(s.Servers))]}
	case len(s.Containers) > 0:
		return s.Containers[rand.IntN(len(s.Containers))]
	}
	return nil
}

// localServer is started again with what it keeps.
type localServer struct{ *servers.Server }

func (s localServer) Start(ctx context.Context) error { return s.Server.Start(ctx, s.Keeps()) }
