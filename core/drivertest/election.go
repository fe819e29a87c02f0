package drivertest

import (
	"context"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func electionCases() []Case {
	return []Case{
		{
			Name: "E1 run campaigns again after every lost term",
			Explain: `Run calls its function for one term after the other until ctx ends, whatever ended the last term, and returns an error
for ctx. Each term has a higher token.`,
			Run: runsAgain,
		},
		{
			Name:    "E1 leadership passes to the next candidate",
			Explain: `When a leader ends its candidacy another candidate is elected at once, and never two lead at a time.`,
			Run:     leadershipPasses,
		},
		{
			Name: "E1 campaign, proclaim and resign by hand",
			Explain: `Campaign returns a term, Proclaim replaces the value that everybody sees, Resign frees the leadership at once and ends
the term.`,
			Run: byHand,
		},
		{
			Name: "E1 a lock and an election of one name are one",
			Explain: `A leader is the holder of a lease with a value: the lock of that name is refused while it leads, and nobody is elected
while it is held.`,
			Run: lockIsElection,
		},
		{
			Name: "E1 proclaim compares owner and token",
			Explain: `A value is published for a lease that lives, compared in the same step: a former leader must not overwrite the value of
the present one. Proclaim does not touch the TTL.`,
			Run: proclaimCompares,
		},
		{
			Name: "E2 renewal goes on until the callback has returned",
			Explain: `When ctx ends the term's ctx is cancelled, but the leadership is kept until the callback has returned, however long it
cleans up, and resigned then: nobody else leads before.`,
			Run: renewsUntilReturn,
		},
		{
			Name: "E2 close waits for what runs under a lock",
			Explain: `When the client closes, the ctx of a function under Do ends, but its lock is kept until the function has returned, as
in an election: nobody else is granted it before.`,
			Run: closeWaits,
		},
		{
			Name: "E2 a term that ends at MaxHold is left to expire",
			Explain: `A term that was lost, or held for MaxHold, is not resigned: the callback may still be running, and the next leader must
not start before the TTL is over.`,
			Run: leftToExpire,
		},
		{
			Name: "E4 one start and one stop per term",
			Explain: `However terms end, the callback is called once for each, its ctx ends once, and the next call comes after it has
returned.`,
			Run: oneStartOneStop,
		},
	}
}

func nothing() {}

func runsAgain(t T, h *Harness) {
	cs := h.clients(t, 2)
	o := core.ElectorOptions{TTL: h.ttl(time.Second), Value: []byte("one")}
	r := cs[0].run(t, "jobs", o, nothing)
	for i := range 3 {
		eventually(t, 4*o.TTL+5*time.Second, fmt.Sprintf("term %d begins", i), func() bool { return r.begun() > i })
		if i > 0 {
			h.wantHigher(t, r.term(i).Token(), r.term(i-1).Token())
		}
		depose(t, h, cs[1].b, "jobs")
	}
	r.end(t, 5*time.Second)
}

func leadershipPasses(t T, h *Harness) {
	cs := h.clients(t, 2)
	first := cs[0].run(t, "jobs", h.lastingTerm("first"), nothing)
	eventually(t, 5*time.Second, "the first candidate leads", func() bool { return first.begun() == 1 })
	second := cs[1].run(t, "jobs", h.lastingTerm("second"), nothing)
	throughout(t, 300*time.Millisecond, func() string {
		if second.begun() > 0 {
			return fmt.Sprintf("two lead, with tokens %d and %d", first.term(0).Token(), second.term(0).Token())
		}
		return ""
	})
	first.end(t, 5*time.Second)
	resigned := time.Now()
	eventually(t, 5*time.Second, "the second candidate leads", func() bool { return second.begun() == 1 })
	wantWithin(t, resigned, time.Now(), 1100*time.Millisecond, "the election after the first had resigned")
	if at := inspect(t, cs[0].b, "jobs"); string(at.Value) != "second" {
		t.Errorf("the second leads, and the value is %q: %s", at.Value, describe(at))
	}
}

func byHand(t T, h *Harness) {
	cs := h.clients(t, 2)
	onlooker := cs[1].elector(t, "jobs", h.lastingTerm("nothing"))
	leader := func() driver.Holder {
		t.Helper()
		var at driver.Holder
		if err := call(t, func(ctx context.Context) (err error) { at, err = onlooker.Leader(ctx); return err }); err != nil {
			t.Fatalf("Leader: %v", err)
		}
		return at
	}
	if at := leader(); at.Held() {
		t.Errorf("before the first campaign: %s", describe(at))
	}
	term := cs[0].campaign(t, "jobs", 5*time.Second, h.lastingTerm("one"))
	if at := leader(); string(at.Value) != "one" || at.Token != term.Token() {
		t.Errorf("token %d leads with value %q; Leader says %q, %s", term.Token(), "one", at.Value, describe(at))
	}
	for _, value := range []string{"two", ""} {
		mustProclaim(t, term, value)
		if at := leader(); string(at.Value) != value {
			t.Errorf("%q was proclaimed, and Leader says %q", value, at.Value)
		}
	}
	mustResign(t, term)
	if at := leader(); at.Held() {
		t.Errorf("after Resign: %s", describe(at))
	}
	if term.Valid() || term.Context().Err() == nil {
		t.Errorf("after Resign Valid is %t and the ctx is %v", term.Valid(), term.Context().Err())
	}
	if err := term.Proclaim(t.Context(), []byte("late")); err == nil {
		t.Errorf("Proclaim after Resign has worked")
	}
}

func lockIsElection(t T, h *Harness) {
	cs := h.clients(t, 2)
	term := cs[0].campaign(t, "jobs", 5*time.Second, h.lastingTerm("one"))
	l, err := cs[1].try(t, "jobs", h.lasting())
	if err == nil {
		t.Fatalf("token %d leads, and the lock of that name was granted with token %d", term.Token(), l.Token())
	}
	wantHeld(t, err, "TryAcquire of the name of an election")
	mustResign(t, term)
	l = cs[1].mustTry(t, "jobs", h.lasting())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if term, err := cs[0].elector(t, "jobs", h.lastingTerm("one")).Campaign(ctx); err == nil {
		t.Errorf("token %d was elected while token %d holds the lock of that name", term.Token(), l.Token())
	}
}

func proclaimCompares(t T, h *Harness) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.ttl(5*time.Second))
	a.Value = []byte("mine")
	a.must(t)
	stranger := *a
	stranger.b, stranger.Value = bs[1], []byte("theirs")
	stranger.Owner += "x"
	wantNotHeld(t, stranger.proclaim(t), "Proclaim by another owner")
	stranger.Owner = a.Owner
	stranger.Token--
	wantNotHeld(t, stranger.proclaim(t), "Proclaim with an earlier token")
	before := inspect(t, bs[1], "jobs")
	if string(before.Value) != "mine" {
		t.Errorf("after refused proclamations the value is %q", before.Value)
	}
	pause(t, 20*time.Millisecond)
	a.Value, a.TTL = []byte("mine\x00too\xff"), h.lasting().TTL
	if err := a.proclaim(t); err != nil {
		t.Fatalf("Proclaim by the holder: %v", err)
	}
	after := inspect(t, bs[1], "jobs")
	longer := after.TTL >= before.TTL+h.props.TTLStep // a store that counts in steps rounds each of them
	if string(after.Value) != string(a.Value) || after.Token != a.Token || longer {
		t.Errorf("%q was proclaimed for token %d with %v left: the store says %q, %s", a.Value, a.Token, before.TTL, after.Value, describe(after))
	}
	a.mustRelease(t)
	wantNotHeld(t, a.proclaim(t), "Proclaim after release")
	wantFree(t, bs[1], "jobs", "after a proclamation that came too late")
}
