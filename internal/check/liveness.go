package check

import (
	"fmt"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/results"
)

// longTTL is that of leases of which none may be lost for want of time.
const longTTL = 10 * time.Second

// keeps judges a lease under a fault to which none should be lost. One that was
// granted in an outage is not promised to outlast it.
func (c *Cell) keeps(r results.Round, l results.Hold) {
	inOutage := l.GrantedNs > r.InjectedNs && l.GrantedNs < r.BackNs
	if !r.Keeps || inOutage || l.DoneNs == 0 || l.ReleaseNs != 0 {
		return
	}
	c.FalseLosses++
	if ttlOf(r) >= longTTL {
		c.Unserved++
		c.violation(r, claim.Survives, l.Name, fmt.Sprintf("host %d lost its lease with token %d at %s: %s", l.Host, l.Token, at(l.DoneNs), l.Cause))
	}
}

// prompt judges one of the grants of a lock, for which somebody waits from the
// injection on: once the store is back whoever waits gets what is free.
func (c *Cell) prompt(r results.Round, leases []results.Hold, i int) {
	l, free := leases[i], r.BackNs
	if free == 0 || l.GrantedNs < r.InjectedNs {
		return
	}
	if i > 0 {
		switch before := leases[i-1]; {
		case before.ReleasedNs > 0:
			free = max(free, before.ReleasedNs)
		case before.ReleaseNs > 0: // it is tried until it is answered
			free = max(free, before.ReleaseNs) + int64(claim.ReleaseGrace)
		default:
			return // nobody knows when it ended
		}
	}
	bound := claim.Of(claim.Woken).Within(claim.Setting{Terms: claim.TermsOf(r.Backend), TTL: ttlOf(r)})
	if waited := l.GrantedNs - free - starved(r.Halts, l.Host, free, l.GrantedNs); waited > int64(bound) {
		c.Unserved++
		c.violation(r, claim.Woken, l.Name, fmt.Sprintf("host %d was granted token %d at %s, and the lock was free and the store back at %s",
			l.Host, l.Token, at(l.GrantedNs), at(free)))
	}
}

func ttlOf(r results.Round) time.Duration { return time.Duration(r.TTLms) * time.Millisecond }

// starved is for how long a host could not run between two moments.
func starved(halts []results.Halt, host int, from, to int64) int64 {
	sum := int64(0)
	for _, h := range halts {
		if h.Host == host && h.To > 0 {
			sum += max(0, min(h.To, to)-max(h.From, from))
		}
	}
	return sum
}
