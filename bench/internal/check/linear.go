package check

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/claim"
)

// judging is the time limit of the search for an order of all operations on a lock in which the
// lock never has two holders. The search is usually short, because a lock has few holders.
const judging = 10 * time.Second

type operation struct {
	kind  opKind
	lease int // the number of the lease among the grants of its lock
}

type opKind uint8

const (
	opAcquire opKind = iota
	opRenew
	opFree // a release, an expiry, or a clean-up by a client that knows that the lease is over
)

// nobody is the state of a lock that no client holds. The state of a held lock is the number of its
// grant.
const nobody = -1

// lockModel is a model of a lock with at most one holder. An opFree ends a lease, and does nothing
// if another lease holds the lock. If it is not known when an opFree returned, it may have taken
// effect at any time after its call, or never.
var lockModel = porcupine.Model{
	Init: func() any { return nobody },
	Step: func(state, input, _ any) (bool, any) {
		holder, op := state.(int), input.(operation)
		switch op.kind {
		case opAcquire:
			return holder == nobody, op.lease
		case opRenew:
			return holder == op.lease, holder
		}
		if holder == op.lease {
			return true, nobody
		}
		return true, holder
	},
}

// linear reports whether the holds can be those of a lock with at most one holder at a time.
// died(host) is the time when the host was killed, or 0. If the parameter forgets is not 0, the
// store may forget, from t=forgets on, each hold that was requested earlier. If the search exceeds
// judging, decided is false.
func linear(holds []results.Hold, s claim.Setting, died func(host int) int64, forgets int64) (ok, decided bool) {
	var ops []porcupine.Operation
	add := func(kind opKind, lease int, call, back int64) {
		ops = append(ops, porcupine.Operation{
			ClientId: lease, Input: operation{kind, lease}, Call: call, Return: max(call, back),
		})
	}
	for i, l := range holds {
		add(opAcquire, i, l.AskedNs, l.GrantedNs)
		for _, r := range l.Renewals {
			add(opRenew, i, r[0], r[1])
		}
		if forgets > 0 && l.AskedNs < forgets {
			add(opFree, i, forgets, math.MaxInt64)
		}
		if l.ReleasedNs > 0 {
			add(opFree, i, l.ReleaseNs, l.ReleasedNs)
			continue
		}
		add(opFree, i, freeFrom(l, s, died(l.Host)), math.MaxInt64)
	}
	result := porcupine.CheckOperationsTimeout(lockModel, ops, judging)
	return result == porcupine.Ok, result != porcupine.Unknown
}

// rounding allows for a store that counts in milliseconds, and for the time between reading the
// clock and sending the request.
const rounding = 5 * time.Millisecond

// freeFrom returns the earliest time at which the hold l may be over, if the store has not
// confirmed its release. This is when the lease expires, counted from the last confirmed request.
// It is earlier if the holder began the release, learned of the loss or died before that time.
func freeFrom(l results.Hold, s claim.Setting, died int64) int64 {
	sent, ttl := l.AskedNs, s.TTL
	if s.FirstSpan > 0 && len(l.Renewals) == 0 {
		ttl = min(ttl, s.FirstSpan)
	}
	for _, r := range l.Renewals {
		sent = max(sent, r[0])
	}
	from := sent + int64(ttl-rounding)
	for _, known := range []int64{l.ReleaseNs, l.DoneNs, died} {
		if known > 0 {
			from = min(from, known)
		}
	}
	return from
}
