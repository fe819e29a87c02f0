package check

import (
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/results"
)

// calls judges that calls come back in time, that nobody gives up who was served
// once, neither a wait nor a release, and that no host ends by itself.
func (j *judge) calls() {
	for on, h := range j.Hosts {
		for _, c := range h.Calls {
			j.deadline(on, c)
			if j.gaveUp(h, c) {
				j.broken(on, claim.GaveUp, "%s of lock %d on host %s gave up %v before its context ended: %s", c.Op, c.Name,
					HostName(on), millis(c.LimitNs-c.BackNs), c.Error)
			}
		}
		if !h.Alive && h.Ended == 0 {
			j.broken(on, claim.Crash, "the process of host %s has ended by itself", HostName(on))
		}
	}
}

// gaveUp reports whether a call failed that had time left. A release has until
// its lease is over, which it is soon if it could not be renewed before.
func (j *judge) gaveUp(h Host, c results.Call) bool {
	until := min(c.LimitNs-int64(claim.Slack), j.Stopped)
	switch {
	case !c.Served || !c.GaveUp():
		return false
	case c.Op == results.OpRelease:
		ttl := int64(j.Names[c.Name].TTL)
		until = min(until, c.SentNs+ttl/2)
		if overlap(slices.Concat(h.Silent, h.Stood), Span{c.SentNs - ttl, c.SentNs}) > time.Duration(ttl/10) {
			return false
		}
	case !c.Waits():
		return false
	}
	return c.BackNs < until
}

// deadline judges the end of one call.
func (j *judge) deadline(on int, c results.Call) {
	grace := claim.CloseGrace
	switch c.Op {
	case results.OpLock, results.OpTry:
		grace = claim.AcquireGrace
	case results.OpDo, results.OpLead:
		grace = claim.AcquireGrace + claim.ReleaseGrace
	case results.OpRelease:
		grace = claim.ReleaseGrace
	}
	if c.LimitNs == 0 || c.BackNs > j.Stopped || c.BackNs < c.LimitNs+int64(grace) {
		return
	}
	stood := overlap(j.Hosts[on].Stood, Span{c.SentNs, c.BackNs})
	if time.Duration(c.BackNs-c.LimitNs)-stood > grace {
		j.late(on, claim.Deadline, "%s of lock %d on host %s came back %v after its context had ended", c.Op, c.Name, HostName(on), millis(c.BackNs-c.LimitNs))
	}
}

// stalls judges that a lock which is free and wanted is granted.
func (j *judge) stalls() {
	for name, holds := range j.holds {
		for i, h := range holds {
			next := j.Stopped
			if i+1 < len(holds) {
				next = min(next, holds[i+1].GrantedNs)
			}
			if free := j.freeAt(h); free < next {
				j.stall(name, free, next)
			}
		}
	}
}

// stall judges one time in which a lock was free.
func (j *judge) stall(name int, free, next int64) {
	s := j.Names[name].Setting
	for on, h := range j.Hosts {
		if h.Ended > 0 {
			continue
		}
		for _, c := range h.Calls {
			if !c.Waits() || c.Name != name || c.GaveUp() || c.Outcome == results.CallClosed {
				continue
			}
			waited := Span{max(free, c.SentNs), min(next, c.BackNs)}
			rule := claim.Woken
			if j.Interrupted(Span{waited[0] - int64(s.TTL), waited[1]}) {
				rule = claim.Granted
			}
			d, bound := time.Duration(waited[1]-waited[0]), claim.Of(rule).Within(s)
			if d < bound {
				continue
			}
			if d -= overlap(slices.Concat(h.Unserved, h.Stood), waited); d > bound {
				j.late(on, rule, "lock %d was free from %v on, and host %s waited %v for it", name, j.since(free), HostName(on), d.Round(time.Millisecond))
				return
			}
		}
	}
}

// probes judges that every lock is free when all hosts have ended.
func (j *judge) probes() {
	for _, p := range j.Probes {
		s := j.Names[p.Name].Setting
		bound := claim.Of(claim.Orphaned).Within(s) + claim.Of(claim.Woken).Within(s)
		if len(j.Events) > 0 {
			bound = max(bound, claim.Of(claim.Granted).Within(s))
		}
		if p.Took > bound || p.Error != "" {
			j.late(everywhere, claim.Orphaned, "lock %d (TTL %v) was not free %v after every host had ended %s", p.Name, s.TTL, p.Took.Round(time.Millisecond), p.Error)
		}
	}
}
