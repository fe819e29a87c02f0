package results

import (
	"fmt"
	"slices"
	"time"
)

// Differs says in what the figures of two plans do not mean the same. Seed,
// number of runs and mutual TLS may differ, and where the servers were.
func (p Plan) Differs(q Plan) []string {
	return differing([]setting{
		{"backends", set(p.Backends), set(q.Backends)},
		{"scenarios", set(p.Scenarios), set(q.Scenarios)},
		{"clients", p.Clients, q.Clients},
		{"hosts", p.Hosts, q.Hosts},
		{"keys", p.Keys, q.Keys},
		{"holds", durations(p.HoldNs), durations(q.HoldNs)},
		{"rates", p.Rate, q.Rate},
		{"modes of takeover", p.Modes, q.Modes},
		{"candidates", p.Candidates, q.Candidates},
		{"ticks in ms", p.TickMs, q.TickMs},
		{"TTLs", time.Duration(p.TTLms) * time.Millisecond, time.Duration(q.TTLms) * time.Millisecond},
		{"warm-ups", time.Duration(p.WarmUpms) * time.Millisecond, time.Duration(q.WarmUpms) * time.Millisecond},
		{"measured times", time.Duration(p.Measurems) * time.Millisecond, time.Duration(q.Measurems) * time.Millisecond},
		{"parts", p.Parts, q.Parts},
	})
}

// Elsewhere says in what the servers of two plans were not in the same place.
func (p Plan) Elsewhere(q Plan) []string {
	return differing([]setting{
		{"environments", p.Env, q.Env},
		{"own targets", set(p.OwnTargets), set(q.OwnTargets)},
	})
}

// setting is something of two plans.
type setting struct {
	what string
	a, b any
}

func differing(all []setting) (out []string) {
	for _, f := range all {
		if a, b := fmt.Sprint(f.a), fmt.Sprint(f.b); a != b {
			out = append(out, fmt.Sprintf("%s %s and %s", f.what, a, b))
		}
	}
	return out
}

func set(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

func durations(ns []int64) []time.Duration {
	var out []time.Duration
	for _, n := range ns {
		out = append(out, time.Duration(n))
	}
	return out
}
