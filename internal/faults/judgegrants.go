package faults

import (
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/results"
)

// leases are those of all hosts by name, in the order of their grants.
func (j *judge) leases() map[int][]results.Hold {
	var all []results.Hold
	for _, seen := range j.h.Seen {
		all = append(all, seen.Holds...)
	}
	return check.ByName(all)
}

// exclusion judges that nobody is granted what another one has, and that tokens
// rise.
func (j *judge) exclusion() {
	round := results.Round{Backend: j.backend.Name, Kind: results.KindPlugin, Fencing: j.backend.Fencing, Names: j.h.names()}
	for name, leases := range j.leases() {
		j.out.grants += len(leases)
		round.Holds = append(round.Holds, leases...)
		for i := 1; i < len(leases); i++ {
			first, next := leases[i-1], leases[i]
			if late := first.DoneNs - next.GrantedNs; first.DoneNs > 0 && first.ReleaseNs == 0 && late > 0 &&
				overlap(j.halts[first.Host], span{next.GrantedNs - int64(time.Second), first.DoneNs}) == 0 {
				j.broken(first.Host, claim.Signal, "host %s learned of the loss of lock %d %v after host %s was granted it", hostName(first.Host), name, ms(late), hostName(next.Host))
			}
		}
	}
	for _, v := range check.Exclusion(round).Violations {
		j.broken(everywhere, v.Rule, "host %s was granted lock %s by token %d after %v and found it valid until %v, host %s by token %d after %v",
			hostName(int(v.First.Client)), v.Name, v.First.Token, j.since(v.First.Answered), j.since(v.First.Ended),
			hostName(int(v.Second.Client)), v.Second.Token, j.since(v.Second.Answered))
	}
}

// callbacks judges that no lock is released while a function runs under it.
func (j *judge) callbacks() {
	for name, leases := range j.leases() {
		for _, l := range leases {
			if j.h.group(name).Kind == results.OpDo && l.ReleaseNs == 0 && l.Cause == "released" {
				j.broken(l.Host, claim.Callback, "host %s released lock %d after %v while the function under it ran", hostName(l.Host), name, j.since(l.DoneNs))
			}
		}
	}
}

// losses judges that leases live through interruptions that are short.
func (j *judge) losses() {
	for name, leases := range j.leases() {
		ttl := time.Duration(j.h.group(name).TTL)
		bears := claim.Of(claim.Survives).Within(claim.Setting{Terms: claim.TermsOf(j.backend.Name), TTL: ttl})
		for _, l := range leases {
			if l.DoneNs == 0 || l.ReleaseNs > 0 || l.Cause == "released" || l.DoneNs > j.h.Stopped || j.endedAt(l.Host) > 0 {
				continue
			}
			out := overlap(slices.Concat(j.silent[l.Host], j.halts[l.Host]), span{l.DoneNs - int64(ttl), l.DoneNs})
			if out < bears {
				j.late(l.Host, claim.Survives, "host %s lost lock %d (TTL %v, %s) after %v, although it was interrupted for %v of the last %v only", hostName(l.Host), name, ttl, l.Cause,
					j.since(l.DoneNs), out.Round(time.Millisecond), ttl)
			}
		}
	}
}
