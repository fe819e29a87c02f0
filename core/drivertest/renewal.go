package drivertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func renewalCases() []Case {
	return []Case{
		{
			Name: "L4 suspect while renewals fail, held again when they work",
			Explain: `A failed renewal makes a lease suspect, not lost: it is retried until the deadline, and one that succeeds makes the
lease held again, with the token that it had.`,
			Run: suspectThenHeld,
		},
		{
			Name:    "L5 a lease is held for as long as its holder lives",
			Explain: `Renewal keeps the lease over any number of TTLs, under one owner and token, while all other owners are refused.`,
			Run:     heldForLong,
		},
		{
			Name:    "L5 many leases are renewed together",
			Explain: `A host renews all its leases in one batch per backend: none of many may be left out.`,
			Alone:   true,
			Run:     manyHeld,
		},
		{
			Name: "L5 a batch does what single calls do",
			Explain: `Batch does every operation as if it had been asked alone and puts its result at the same index. Core renews by it:
results that are mixed up or left out lose leases that live, or keep ones that are gone.`,
			Excuse: needsCapability(driver.CapBatcher),
			Run:    batchAsSingle,
		},
	}
}

func suspectThenHeld(t T, h *Harness) {
	c, g := h.injected(t, h.open(t))
	o := core.LockOptions{TTL: h.ttl(3 * time.Second)}
	l := c.mustTry(t, "jobs", o)
	token := l.Token()
	g.cut.Store(true)
	eventually(t, o.TTL, "the lease is suspect", func() bool { return l.State() == core.Suspect })
	g.cut.Store(false)
	eventually(t, o.TTL, "the lease is held again", func() bool { return l.State() == core.Held })
	if !l.Valid() || l.Token() != token {
		t.Errorf("held again, Valid is %t and the token %d instead of %d", l.Valid(), l.Token(), token)
	}
	staysAlive(t, o.TTL/2, o.TTL, l)
}

func heldForLong(t T, h *Harness) {
	bs := h.backends(t, 2)
	o := core.LockOptions{TTL: h.ttl(2 * time.Second)}
	l := h.clientOn(t, bs[0]).mustTry(t, "jobs", o)
	token := l.Token()
	throughout(t, 3*o.TTL, func() string {
		other := h.attempt(bs[1], "jobs", o.TTL)
		err := other.try(t)
		wantAlive(t, l, o.TTL)
		if !errors.Is(err, driver.ErrHeld) {
			return fmt.Sprintf("TryAcquire by another: token %d, %v, while token %d is held", other.Token, err, token)
		}
		if l.Token() != token {
			return fmt.Sprintf("the token is %d instead of %d", l.Token(), token)
		}
		return ""
	})
}

func manyHeld(t T, h *Harness) {
	c := h.client(t)
	o, n := core.LockOptions{TTL: h.ttl(5 * time.Second)}, 100
	if needsCapability(driver.CapBatcher)(h.props) != "" {
		n = 40 // few leases, because each renewal is a request
	}
	var all []held
	for i := range n {
		all = append(all, c.mustTry(t, fmt.Sprintf("jobs/%d", i), o))
	}
	staysAlive(t, o.TTL*5/4, o.TTL, all...)
	for i, l := range all {
		if at := inspect(t, c.b, fmt.Sprintf("jobs/%d", i)); at.Owner != l.Owner() {
			wantAlive(t, l, o.TTL)
			t.Errorf("lease %d of owner %s is valid, and the store says: %s", i, l.Owner(), describe(at))
		}
	}
}

func batchAsSingle(t T, h *Harness) {
	bs := h.backends(t, 2)
	batcher := driver.BatcherOf(bs[0])
	do := func(ops ...driver.Op) []driver.Result {
		results := batcher.Batch(t.Context(), ops)
		if len(results) != len(ops) {
			t.Fatalf("%d results for %d operations", len(results), len(ops))
		}
		return results
	}
	h.attempt(bs[1], "taken", h.lasting().TTL).must(t)
	var ops []driver.Op
	for i := range 150 {
		ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: h.attempt(bs[0], fmt.Sprintf("jobs/%d", i), h.lasting().TTL).Request})
	}
	ops[70].Name = "taken"
	for i, r := range do(ops...) {
		if i == 70 {
			wantHeld(t, r.Err, "acquiring a taken lock in a batch")
			continue
		}
		if at := inspect(t, bs[0], ops[i].Name); r.Err != nil || at.Token != r.Token || at.Owner != ops[i].Owner {
			t.Fatalf("operation %d, owner %s: token %d, %v, and the store says: %s", i, ops[i].Owner, r.Token, r.Err, describe(at))
		}
		ops[i].Token = r.Token
	}
	batchRenewals(t, h, bs[0], ops, do)
	batchInOrder(t, h, bs[0], do)
}

// batchRenewals renews or releases the lease of each operation in ops, in one batch.
func batchRenewals(t T, h *Harness, b driver.Backend, ops []driver.Op, do func(...driver.Op) []driver.Result) {
	for i := range ops {
		ops[i].Kind = driver.OpRenew
		if i%2 == 1 {
			ops[i].Kind = driver.OpRelease
		}
	}
	ops[4].Token++
	ops[5].Token++
	ops[6].Owner += "x"
	ops[7].Owner += "x"
	ops[8].Name = "never held"
	bad := map[int]bool{4: true, 5: true, 6: true, 7: true, 8: true, 70: true}
	for i, r := range do(ops...) {
		switch {
		case bad[i]:
			wantNotHeld(t, r.Err, fmt.Sprintf("operation %d of the batch", i))
		case r.Err != nil:
			t.Errorf("operation %d of the batch, on %q: %v", i, ops[i].Name, r.Err)
		}
	}
	for i, op := range ops {
		held := inspect(t, b, op.Name).Held()
		if want := i%2 == 0 && i != 8 || bad[i] && i != 8; held != want {
			t.Errorf("after operation %d %q is held: %t, want %t", i, op.Name, held, want)
		}
	}
}

func batchInOrder(t T, h *Harness, b driver.Backend, do func(...driver.Op) []driver.Result) {
	a, next := h.attempt(b, "in order", h.lasting().TTL).must(t), h.attempt(b, "in order", h.lasting().TTL)
	results := do(driver.Op{Kind: driver.OpRelease, Request: a.Request}, driver.Op{Kind: driver.OpAcquire, Request: next.Request})
	if results[0].Err != nil || results[1].Err != nil {
		t.Errorf("release and acquire of one lock in one batch: %v and %v", results[0].Err, results[1].Err)
	}
	next.Token = results[1].Token
	next.wantHeldBy(t, "after release and acquire in one batch")
}
