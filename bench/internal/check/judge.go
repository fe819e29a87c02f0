package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/claim"
)

// Span is a period: its start and its end.
type Span [2]int64

// Play is the record of a schedule of harmful events that was played on one backend. All times are
// nanoseconds of the same clock.
type Play struct {
	Backend, Fencing string
	Terms            claim.Terms // of the backend
	Began, Stopped   int64       // when the callers were told to begin and to stop
	Names            []Name
	Hosts            []Host
	Events           []Span // for each event, the period from its injection to its end
	Made             []Made // conditions that events caused, except events on a single host
	// Starved reports whether the machine was too busy to judge claims with a time limit.
	Starved bool
	Probes  []Probe
	Left    []string // leftovers, and where they were found
}

// Name describes one lock: how callers use it, and what determines the time limits of claims.
type Name struct {
	Op      results.Op
	AtLeast time.Duration // the shortest time that the lock stays taken
	claim.Setting
}

// Made is a condition that an event caused, from the time From on.
type Made struct {
	claim.Condition
	From int64
}

// Host has the reports of one host, and what events did to this host.
type Host struct {
	results.Seen
	Alive   bool  // the host lived until the end, and then ended normally
	Crashed bool  // the host ended with an error status, which no event causes
	Ended   int64 // when an event was to end the host; 0 if there was no such event
	Made    []Made
	// These fields are periods. In Unserved, the store may have granted the host nothing. In Silent,
	// the store may have answered no request of the host. In Stood, the host's process did not run.
	Unserved, Silent, Stood []Span
}

// Probe is an attempt to acquire a lock after all hosts had ended or released their locks.
type Probe struct {
	Name  int
	Took  time.Duration // the time until the lock was granted to a new host
	Error string        // why the lock was not granted
}

type Judgement struct {
	// Violations break a claim. Exempt are violations that the documentation permits.
	Violations, Exempt []Violation
	Grants             int
	Starved            bool
	// Unjudged reports whether a claim with a time limit seemed broken on a starved machine.
	Unjudged bool
}

type judge struct {
	Play
	holds map[int][]results.Hold // by name, in the order of their grants
	out   Judgement
}

// Judge judges a played schedule by the claims for its backend.
func Judge(p Play) Judgement {
	j := &judge{Play: p, out: Judgement{Starved: p.Starved}}
	var all []results.Hold
	for _, h := range p.Hosts {
		all = append(all, h.Holds...)
	}
	j.holds, j.out.Grants = byName(all), len(all)
	j.exclusion()
	j.ends()
	j.calls()
	j.stalls()
	j.probes()
	for _, what := range p.Left {
		j.broken(everywhere, claim.Leaked, j.Stopped, "%s", what)
	}
	return j.out
}

// byName groups holds by the number of their lock, in the order of their grants.
func byName(holds []results.Hold) map[int][]results.Hold {
	of := map[int][]results.Hold{}
	for _, h := range inOrder(holds) {
		of[h.Name] = append(of[h.Name], h)
	}
	return of
}

// HostName returns the name of a host in texts for people: A, B, ...
func HostName(n int) string { return string(rune('A' + n)) }

// everywhere replaces a host's number in violations that do not concern a single host. Exceptions
// for an action on one host do not excuse such a violation.
const everywhere = -1

// exempt reports whether the documentation allows a violation of the rule, on one host or
// everywhere, because of conditions that events had caused by t=at.
func (j *judge) exempt(host int, rule claim.Rule, at int64) bool {
	all := j.Made
	if host != everywhere {
		all = slices.Concat(all, j.Hosts[host].Made)
	}
	var made []claim.Condition
	for _, m := range all {
		if m.From <= at {
			made = append(made, m.Condition)
		}
	}
	_, known := j.Terms.Exempt(rule, made)
	return known
}

// broken records a violation of a claim at t=at, on one host or everywhere.
func (j *judge) broken(host int, rule claim.Rule, at int64, format string, args ...any) {
	to := &j.out.Violations
	if j.exempt(host, rule, at) {
		to = &j.out.Exempt
	}
	*to = append(*to, Violation{rule, j.Backend, fmt.Sprintf(format, args...)})
}

// late records that a claim with a time limit was broken at t=at. If the machine was starved of
// processor time, late sets Unjudged instead.
func (j *judge) late(host int, rule claim.Rule, at int64, format string, args ...any) {
	if j.Starved {
		j.out.Unjudged = true
		return
	}
	j.broken(host, rule, at, format, args...)
}

func (j *judge) since(at int64) time.Duration { return millis(at - j.Began) }

func millis(ns int64) time.Duration { return time.Duration(ns).Round(time.Millisecond) }

// exclusion checks that no lock is granted while another host has it, and that tokens rise. A host
// that loses a lock must learn of this in time, and may not renew the lock after the next grant.
func (j *judge) exclusion() {
	for name, holds := range j.holds {
		for i := 1; i < len(holds); i++ {
			first, next := holds[i-1], holds[i]
			stood := j.Hosts[first.Host].Stood
			if warning, known := margin(first, next, stood, time.Second); known && warning < 0 && overlap(stood, Span{next.GrantedNs, first.DoneNs}) == 0 {
				j.broken(first.Host, claim.Signal, first.DoneNs, "host %s learned of the loss of lock %d %v after host %s was granted it",
					HostName(first.Host), name, millis(-warning), HostName(next.Host))
			}
			if late := staleRenewal(first, next); late > 0 {
				j.broken(first.Host, claim.Renewal, next.GrantedNs+late, "host %s renewed lock %d %v after host %s was granted it",
					HostName(first.Host), name, millis(late), HostName(next.Host))
			}
		}
		new(grants).add(holds, j.Fencing != "none", func(rule claim.Rule, first, second results.Hold) {
			granted := second.GrantedNs
			heard := Span{granted - int64(j.Names[name].TTL), granted}
			if forgotten(rule, first, second) && j.exempt(everywhere, claim.Overlap, granted) && j.Interrupted(heard) {
				return
			}
			j.broken(everywhere, rule, second.GrantedNs, "host %s was granted lock %d by token %d after %v and found it valid until %v, host %s by token %d after %v",
				HostName(first.Host), name, first.Token, j.since(first.GrantedNs), j.since(first.Until()),
				HostName(second.Host), second.Token, j.since(second.GrantedNs))
		})
	}
}

// staleRenewal returns the time from the grant of the second hold (next) to the sending of the
// first hold's last confirmed renewal. It returns 0 if no such renewal was sent after that grant,
// or if the second token is not higher than the first.
func staleRenewal(first, next results.Hold) (ns int64) {
	if first.Token >= next.Token {
		return 0
	}
	for _, r := range first.Renewals {
		ns = max(ns, r[0]-next.GrantedNs)
	}
	return ns
}

// margin returns the time from the moment when the first holder learned of its loss to the next
// grant. The time is known only if that holder lost the lock, and if its process ran during the
// whole period before the next grant. The parameter before is the length of this period. A holder
// whose host closes its client loses nothing. Its lease ends before the release is sent, but its
// goroutine may see this only after the next grant. The rule Overlap covers this case.
func margin(first, next results.Hold, stood []Span, before time.Duration) (ns int64, known bool) {
	if first.DoneNs == 0 || first.ReleaseNs > 0 || first.Cause == "released" || overlap(stood, Span{next.GrantedNs - int64(before), next.GrantedNs}) > 0 {
		return 0, false
	}
	return next.GrantedNs - first.DoneNs, true
}

// brief reports whether the lease of the hold h was granted for less than half a TTL, and no
// renewal was confirmed. Stores grant such leases to waiters in their queues.
func brief(h results.Hold, s claim.Setting) bool {
	return s.FirstSpan > 0 && len(h.Renewals) == 0 && h.UntilNs > 0 && h.UntilNs-h.GrantedNs < int64(s.TTL/2)
}

// The ends method judges how holds have ended. A host must not release a lock while a function that
// needs the lock still runs, and its leases must survive short interruptions.
func (j *judge) ends() {
	for name, holds := range j.holds {
		of := j.Names[name]
		for _, h := range holds {
			on := j.Hosts[h.Host]
			switch {
			case h.DoneNs == 0 || h.ReleaseNs > 0:
			case h.Cause == "released":
				if of.Op == results.OpDo {
					j.broken(h.Host, claim.Callback, h.DoneNs, "host %s released lock %d after %v while the function under it ran", HostName(h.Host), name, j.since(h.DoneNs))
				}
			case h.Cause != "revoked" && brief(h, of.Setting):
			case h.DoneNs <= j.Stopped && on.Ended == 0:
				out := overlap(slices.Concat(on.Silent, on.Stood), Span{h.DoneNs - int64(of.TTL), h.DoneNs})
				if out < claim.Survives.Within(of.Setting) {
					j.late(h.Host, claim.Survives, h.DoneNs, "host %s lost lock %d (TTL %v, %s) after %v, although it was interrupted for %v of the last %v only",
						HostName(h.Host), name, of.TTL, h.Cause, j.since(h.DoneNs), out.Round(time.Millisecond), of.TTL)
				}
			}
		}
	}
}

// overlap returns how much of the given period the spans cover. The spans may overlap each other.
func overlap(spans []Span, in Span) time.Duration {
	sorted := slices.SortedFunc(slices.Values(spans), func(a, b Span) int { return cmp.Compare(a[0], b[0]) })
	var sum int64
	at := in[0]
	for _, s := range sorted {
		from, to := max(s[0], at), min(s[1], in[1])
		if to > from {
			sum += to - from
			at = to
		}
	}
	return time.Duration(sum)
}

func (p Play) Interrupted(in Span) bool {
	return slices.ContainsFunc(p.Events, func(e Span) bool { return e[0] < in[1] && e[1] > in[0] })
}

// freeAt returns the latest time at which the lock becomes free for other hosts after the hold h.
func (j *judge) freeAt(h results.Hold) int64 {
	ttl := int64(j.Names[h.Name].TTL)
	switch died := j.Hosts[h.Host].Ended; {
	case h.ReleasedNs > 0:
		if kept := h.GrantedNs + int64(j.Names[h.Name].AtLeast); kept > h.ReleasedNs {
			return kept + int64(j.Names[h.Name].ExpiresLate)
		}
		return h.ReleasedNs
	case h.ReleaseNs > 0: // the store has not confirmed the release
		return max(h.ReleaseNs, h.ValidNs) + ttl
	case h.DoneNs > 0:
		return h.DoneNs + ttl/4
	case died > 0:
		return died + ttl
	}
	return math.MaxInt64
}

// calls() checks that calls return in time, and that no host process ends without an event that
// ends it. A client that the store has once served must not give up a wait or a release too early.
func (j *judge) calls() {
	for on, h := range j.Hosts {
		for _, c := range h.Calls {
			j.deadline(on, c)
			if j.gaveUp(h, c) {
				j.broken(on, claim.GaveUp, c.BackNs, "%s of lock %d on host %s gave up %v before its context ended: %s", c.Op, c.Name,
					HostName(on), millis(c.LimitNs-c.BackNs), c.Error)
			}
		}
		if h.Crashed || !h.Alive && h.Ended == 0 {
			j.broken(on, claim.Crash, j.Stopped, "the process of host %s has ended by itself", HostName(on))
		}
	}
}

// gaveUp reports whether the call c failed although it had time left. A release has time only until
// its lease is over, and the lease is over early if its last renewals failed.
func (j *judge) gaveUp(h Host, c results.Call) bool {
	until := min(c.LimitNs-int64(claim.Slack), j.Stopped)
	switch {
	case !c.Served || !c.GaveUp():
		return false
	case c.Op == results.OpRelease && j.Starved: // renewals were late
		j.out.Unjudged = true
		return false
	case c.Op == results.OpRelease:
		ttl := int64(j.Names[c.Name].TTL)
		until = min(until, c.SentNs+ttl/2)
		if overlap(slices.Concat(h.Silent, h.Stood), Span{c.SentNs - ttl, c.SentNs}) > time.Duration(ttl/10) || j.unconfirmed(h, c) {
			return false
		}
	case !c.Waits():
		return false
	}
	return c.BackNs < until
}

// unconfirmed reports whether a [brief] lease may have ended before its release could reach the
// store, because the store did not answer or the host did not run.
func (j *judge) unconfirmed(h Host, release results.Call) bool {
	return slices.ContainsFunc(h.Holds, func(l results.Hold) bool {
		return l.Name == release.Name && brief(l, j.Names[l.Name].Setting) && l.GrantedNs <= release.SentNs && release.SentNs < l.UntilNs &&
			overlap(slices.Concat(h.Silent, h.Stood), Span{l.GrantedNs, release.BackNs}) > 0
	})
}

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
		j.late(on, claim.Deadline, c.BackNs, "%s of lock %d on host %s came back %v after its context had ended", c.Op, c.Name, HostName(on), millis(c.BackNs-c.LimitNs))
	}
}

// The stalls method checks that a free lock is granted in time to a caller that waits for it. A
// lock is free at the beginning and after each hold.
func (j *judge) stalls() {
	for name := range j.Names {
		free := j.Began
		for _, h := range j.holds[name] {
			j.stall(name, free, min(h.GrantedNs, j.Stopped))
			free = j.freeAt(h)
		}
		j.stall(name, free, j.Stopped)
	}
}

// stall judges one period in which a lock was free, from t=free to t=next.
func (j *judge) stall(name int, free, next int64) {
	if free >= next {
		return
	}
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
			d, bound := time.Duration(waited[1]-waited[0]), rule.Within(s)
			if d < bound {
				continue
			}
			if d -= overlap(slices.Concat(h.Unserved, h.Stood), waited); d > bound {
				j.late(on, rule, waited[1], "lock %d was free from %v on, and host %s waited %v for it", name, j.since(free), HostName(on), d.Round(time.Millisecond))
				return
			}
		}
	}
}

// probes() checks that every lock becomes free after all hosts have ended or released their locks.
func (j *judge) probes() {
	for _, p := range j.Probes {
		s := j.Names[p.Name].Setting
		bound := claim.Orphaned.Within(s) + claim.Woken.Within(s)
		if len(j.Events) > 0 {
			bound = max(bound, claim.Granted.Within(s))
		}
		if p.Took > bound || p.Error != "" {
			j.late(everywhere, claim.Orphaned, j.Stopped, "lock %d (TTL %v) was not free %v after every host had ended %s", p.Name, s.TTL, p.Took.Round(time.Millisecond), p.Error)
		}
	}
}
