package etcd

import (
	"fmt"
	"testing"
	"time"
)

// After the store has lost its data, the new holder's key has the same name and create revision as
// the old holder's key. No operation by the old holder may affect the new holder's lease.
func TestSameRevisionOfTwoGenerations(t *testing.T) {
	s := start(t, nil)
	c := plain(t, s)
	fill := func(until int64) {
		t.Helper()
		for rev := int64(0); rev < until; {
			resp, err := c.Put(t.Context(), "other", fmt.Sprint(rev))
			must(t, err)
			rev = resp.Header.Revision
		}
	}
	old := connect(t, on(s))
	must(t, old.Check(t.Context()))
	fill(100)
	before := acquire(t, old, lock("jobs", "a"))
	g := old.table.find(before.Name, before.Owner, before.Token)

	must(t, s.Stop())
	must(t, s.Start(t.Context(), false))
	fresh := connect(t, on(s))
	must(t, fresh.Release(t.Context(), acquire(t, fresh, lock("warm", "b"))))
	fill(g.rev - 1)
	now := acquire(t, fresh, lock("jobs", "b"))
	if h := fresh.table.find(now.Name, now.Owner, now.Token); h.rev != g.rev {
		t.Fatalf("revisions %d and %d: this shows nothing", g.rev, h.rev)
	}
	eventually(t, "the old process knows the new generation", func() bool {
		h, err := old.Inspect(t.Context(), "jobs")
		return err == nil && h.Token == now.Token
	})

	kept := before
	kept.Keep = 10 * time.Millisecond
	for what, do := range map[string]func() error{
		"proclaim": func() error { return old.Proclaim(t.Context(), before) },
		"keep":     func() error { return old.Release(t.Context(), kept) },
		"release":  func() error { return old.Release(t.Context(), before) },
		"renew":    func() error { return old.Renew(t.Context(), before) },
		"break":    func() error { return old.Break(t.Context(), "jobs", before.Token) },
	} {
		old.table.adopt(g) // an earlier operation may have removed it
		isNotHeld(t, do())
		if h, err := fresh.Inspect(t.Context(), "jobs"); err != nil || h.Owner != "b" || h.Token != now.Token {
			t.Fatalf("after the %s of before: %+v, %v", what, h, err)
		}
	}
	must(t, old.Withdraw(t.Context(), "jobs", "a"))
	must(t, fresh.Renew(t.Context(), now))

	old.table.adopt(g)
	old.table.erase(g)
	eventually(t, "the old process forgets it", func() bool { return !old.table.owns(g) })
	must(t, fresh.Renew(t.Context(), now))
}
