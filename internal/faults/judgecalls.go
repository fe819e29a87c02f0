package faults

import (
	"math"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/results"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// calls judges that calls come back in time, that nobody gives up who was served
// once, neither a wait nor a release, and that no host ends by itself.
func (j *judge) calls() {
	for on, seen := range j.h.Seen {
		for _, c := range seen.Calls {
			j.deadline(on, c)
			if j.gaveUp(on, c) {
				j.broken(on, claim.GaveUp, "%s of lock %d on host %s gave up %v before its context ended: %s", c.Op, c.Name,
					hostName(on), ms(c.LimitNs-c.BackNs), c.Error)
			}
		}
		if !j.h.Alive[on] && j.endedAt(on) == 0 {
			j.broken(on, claim.Crash, "the process of host %s has ended by itself", hostName(on))
		}
	}
}

// gaveUp reports whether a call failed that had time left. A release has until
// its lease is over, which it is soon if it could not be renewed before.
func (j *judge) gaveUp(on int, c results.Call) bool {
	until := min(c.LimitNs-int64(claim.Slack), j.h.Stopped)
	if !c.Served || !c.GaveUp() {
		return false
	}
	if c.Op == results.OpRelease {
		ttl := int64(j.h.group(c.Name).TTL)
		until = min(until, c.SentNs+ttl/2)
		if overlap(slices.Concat(j.silent[on], j.halts[on]), span{c.SentNs - ttl, c.SentNs}) > time.Duration(ttl/10) {
			return false
		}
	} else if !waits(c) {
		return false
	}
	return c.BackNs < until
}

// waits reports whether a call is one that waits for a lock.
func waits(c results.Call) bool {
	switch c.Op {
	case results.OpLock, results.OpDo, results.OpLead:
		return true
	}
	return false
}

// deadline judges the end of one call.
func (j *judge) deadline(on int, c results.Call) {
	var grace time.Duration
	switch c.Op {
	case results.OpLock, results.OpTry:
		grace = claim.AcquireGrace
	case results.OpDo, results.OpLead:
		grace = claim.AcquireGrace + claim.ReleaseGrace
	case results.OpRelease:
		grace = claim.ReleaseGrace
	default:
		grace = claim.CloseGrace
	}
	if c.LimitNs == 0 || c.BackNs > j.h.Stopped || c.BackNs < c.LimitNs+int64(grace) {
		return
	}
	stood := overlap(j.halts[on], span{c.SentNs, c.BackNs})
	if time.Duration(c.BackNs-c.LimitNs)-stood > grace {
		j.late(on, claim.Deadline, "%s of lock %d on host %s came back %v after its context had ended", c.Op, c.Name, hostName(on), ms(c.BackNs-c.LimitNs))
	}
}

// stalls judges that a lock which is free and wanted is granted.
func (j *judge) stalls() {
	for name, leases := range j.leases() {
		for i, l := range leases {
			next := j.h.Stopped
			if i+1 < len(leases) {
				next = min(next, leases[i+1].GrantedNs)
			}
			if free := j.freeAt(l); free < next {
				j.stall(name, free, next)
			}
		}
	}
	for _, p := range j.h.Probes {
		s := j.setting(p.Name)
		bound := claim.Of(claim.Orphaned).Within(s) + claim.Of(claim.Woken).Within(s)
		if len(j.h.Marks) > 0 {
			bound = max(bound, claim.Of(claim.Granted).Within(s))
		}
		if p.Took > bound || p.Error != "" {
			j.late(everywhere, claim.Orphaned, "lock %d (TTL %v) was not free %v after every host had ended %s", p.Name, s.TTL, p.Took.Round(time.Millisecond), p.Error)
		}
	}
}

// setting is what the bounds for a name depend on.
func (j *judge) setting(name int) claim.Setting {
	of := kinds.Of(j.backend.Name)
	s := claim.Setting{Terms: claim.TermsOf(j.backend.Name), TTL: time.Duration(j.h.group(name).TTL)}
	group := j.h.groupOf(name)
	for _, m := range j.h.Marks {
		a := m.action()
		if m.From == 0 {
			continue
		}
		s.Swallowed = s.Swallowed || a.Swallows || a.Stops != StopsNobody
		if a.On == OnHost && a.Stops != StopsNobody {
			s.Absent += j.h.Schedule.Hosts[m.Target].Callers[group]
		}
		if a.Uses == UsesPlugin {
			s.Failures++
		}
		if a.On != OnHost && of.Has(servers.CapVotes) { // a node may be in its quarantine
			s.MaxTTL = maxTTL
		}
	}
	return s
}

// freeAt is when a lease was over for everybody.
func (j *judge) freeAt(l results.Hold) int64 {
	switch {
	case l.ReleasedNs > 0:
		return l.ReleasedNs
	case l.ReleaseNs > 0: // its answer is not known
		return max(l.ReleaseNs, l.ValidNs) + int64(j.h.group(l.Name).TTL)
	case l.DoneNs > 0:
		return l.DoneNs + int64(time.Duration(j.h.group(l.Name).TTL)/4)
	}
	if died := j.endedAt(l.Host); died > 0 {
		return died + int64(j.h.group(l.Name).TTL)
	}
	return math.MaxInt64
}

// stall judges one time in which a lock was free.
func (j *judge) stall(name int, free, next int64) {
	s := j.setting(name)
	for on, seen := range j.h.Seen {
		if j.endedAt(on) > 0 {
			continue
		}
		for _, c := range seen.Calls {
			if !waits(c) || c.Name != name || c.GaveUp() || c.Outcome == results.CallClosed {
				continue
			}
			waited := span{max(free, c.SentNs), min(next, c.BackNs)}
			bound, rule := claim.Of(claim.Woken).Within(s), claim.Woken
			if j.interrupted(span{waited[0] - int64(s.TTL), waited[1]}) {
				bound, rule = claim.Of(claim.Granted).Within(s), claim.Granted
			}
			d := time.Duration(waited[1] - waited[0])
			if d < bound {
				continue
			}
			if d -= overlap(slices.Concat(j.stops[on], j.halts[on]), waited); d > bound {
				j.late(on, rule, "lock %d was free from %v on, and host %s waited %v for it", name, j.since(free), hostName(on), d.Round(time.Millisecond))
				return
			}
		}
	}
}
