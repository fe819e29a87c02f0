package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func electionCases() []Case {
	return []Case{
		{
			Name:    "E1 leadership passes to the next candidate",
			Explain: `When a leader ends its candidacy another candidate is elected at once, and never two lead at a time.`,
			Run:     leadershipPasses,
		},
		{
			Name: "E1 a lock and an election of one name are one",
			Explain: `A leader is the holder of a lease with a value: the lock of that name is refused while it leads, and no candidate is
elected while it is held.`,
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
cleans up, and resigned then: no other candidate leads before.`,
			Run: renewsUntilReturn,
		},
		{
			Name: "E4 one start and one stop per term",
			Explain: `Run campaigns again after every lost term until its ctx ends. The callback is called once for each, with a higher
token, its ctx ends once, and the next call comes after it has returned.`,
			Run: oneStartOneStop,
		},
	}
}

func nothing() {}

func leadershipPasses(t T, h *Harness) {
	cs := h.clients(t, 2)
	first := cs[0].run(t, h.lastingTerm("first"), nothing)
	eventually(t, 5*time.Second, "the first candidate leads", func() bool { return len(first.begun()) == 1 })
	second := cs[1].run(t, h.lastingTerm("second"), nothing)
	throughout(t, 300*time.Millisecond, func() string {
		if terms := second.begun(); len(terms) > 0 {
			return fmt.Sprintf("two lead, with tokens %d and %d", first.begun()[0].Token(), terms[0].Token())
		}
		return ""
	})
	first.end(t, 5*time.Second)
	resigned := time.Now()
	eventually(t, 5*time.Second, "the second candidate leads", func() bool { return len(second.begun()) == 1 })
	wantWithin(t, resigned, time.Now(), 1100*time.Millisecond, "the election after the first had resigned")
	if at := inspect(t, cs[0].b, "jobs"); string(at.Value) != "second" {
		t.Errorf("the second leads, and the value is %q: %s", at.Value, describe(at))
	}
}

func lockIsElection(t T, h *Harness) {
	cs := h.clients(t, 2)
	term := cs[0].campaign(t, 5*time.Second, h.lastingTerm("one"))
	l, err := cs[1].try(t, "jobs", h.lasting())
	if err == nil {
		t.Fatalf("token %d leads, and the lock of that name was granted with token %d", term.Token(), l.Token())
	}
	wantHeld(t, err, "TryAcquire of the name of an election")
	wantNil(t, term.Resign(t.Context()), "Resign")
	l = cs[1].mustTry(t, "jobs", h.lasting())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if term, err := cs[0].elector(t, h.lastingTerm("one")).Campaign(ctx); err == nil {
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
	a.TTL = h.lasting().TTL
	for _, value := range []string{"", "mine\x00too\xff"} {
		a.Value = []byte(value)
		wantNil(t, a.proclaim(t), "Proclaim by the holder")
		after := inspect(t, bs[1], "jobs")
		longer := after.TTL >= before.TTL+h.props.TTLStep // both TTLs may be rounded to a TTLStep
		if string(after.Value) != value || after.Token != a.Token || longer {
			t.Errorf("%q was proclaimed for token %d with %v left: the store says %q, %s", value, a.Token, before.TTL, after.Value, describe(after))
		}
	}
	a.mustRelease(t)
	wantNotHeld(t, a.proclaim(t), "Proclaim after release")
	wantFree(t, bs[1], "jobs", "after a proclamation that came too late")
}

func renewsUntilReturn(t T, h *Harness) {
	cs := h.clients(t, 2)
	o := core.ElectorOptions{TTL: h.ttl(2 * time.Second), Value: []byte("one")}
	returns := make(chan struct{})
	release := sync.OnceFunc(func() { close(returns) })
	t.Cleanup(release)
	r := cs[0].run(t, o, func() { <-returns })
	t.Cleanup(release) // runs before the clean-up of method run, which waits for the callback
	eventually(t, 5*time.Second, "the candidate leads", func() bool { return len(r.begun()) == 1 })
	term := r.begun()[0]
	r.cancel()
	eventually(t, time.Second, "the term's ctx ends", func() bool { return term.Context().Err() != nil })
	h.staysHeld(t, cs[1].b, o.TTL)
	release()
	r.end(t, 5*time.Second)
	h.attempt(cs[1].b, "jobs", o.TTL).must(t)
}

// staysHeld watches the lock for longer than the TTL, so that only renewals can keep it taken.
func (h *Harness) staysHeld(t T, b driver.Backend, ttl time.Duration) {
	throughout(t, ttl*3/2, func() string {
		other := h.attempt(b, "jobs", ttl)
		err := other.try(t)
		if err == nil {
			mistimed(t, ttl, "the callback has not returned, and another asked and got token %d", other.Token)
		}
		wantHeld(t, err, "the callback has not returned, and another asked")
		return ""
	})
}

func oneStartOneStop(t T, h *Harness) {
	cs := h.clients(t, 2)
	o := core.ElectorOptions{TTL: h.ttl(time.Second)}
	start, r := time.Now(), cs[0].run(t, o, nothing)
	const terms = 4
	for i := range terms {
		eventually(t, 4*o.TTL+5*time.Second, fmt.Sprintf("term %d begins", i), func() bool { return len(r.begun()) > i })
		if i < terms-1 {
			depose(t, h, cs[1].b)
		}
	}
	pause(t, o.TTL) // a second start of the last term would come within this time
	r.end(t, 5*time.Second)
	if len(r.terms) != terms || r.ended != terms {
		mistimed(t, time.Since(start), "%d terms began and %d ended; want %d", len(r.terms), r.ended, terms)
	}
	var last uint64
	for i, term := range r.terms {
		h.wantHigher(t, term.Token(), last)
		last = term.Token()
		if term.Valid() || term.Err() == nil {
			t.Errorf("term %d of token %d is over, and Valid is %t, Err %v", i, term.Token(), term.Valid(), term.Err())
		}
	}
}

func (c *client) elector(t T, o core.ElectorOptions) *core.Elector {
	e, err := c.Elector("jobs", &o)
	wantNil(t, err, "Elector")
	return e
}

func (c *client) campaign(t T, limit time.Duration, o core.ElectorOptions) *core.Term {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	term, err := c.elector(t, o).Campaign(ctx)
	if err != nil {
		t.Fatalf("Campaign: %v%s", err, c.holding(t, "jobs"))
	}
	return term
}

func (h *Harness) lastingTerm(value string) core.ElectorOptions {
	return core.ElectorOptions{TTL: h.lasting().TTL, Value: []byte(value)}
}

// runner is an Elector.Run that runs in the background.
type runner struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed

	mu    sync.Mutex
	terms []*core.Term // terms that have begun
	ended int          // number of callbacks that have returned
}

// run starts Elector.Run. Its callback waits until the term ends, and then calls after().
func (c *client) run(t T, o core.ElectorOptions, after func()) *runner {
	e := c.elector(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	r := &runner{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = e.Run(ctx, func(term *core.Term) {
			r.begin(t, term)
			<-term.Context().Done()
			after()
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ended++
		})
	}()
	t.Cleanup(func() { cancel(); <-r.done })
	return r
}

func (r *runner) begin(t T, term *core.Term) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.terms = append(r.terms, term)
	if n := len(r.terms) - r.ended; n > 1 {
		t.Errorf("%d callbacks of one Run are under way", n)
	}
}

func (r *runner) begun() []*core.Term {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.terms)
}

func (r *runner) end(t T, limit time.Duration) {
	r.cancel()
	if _, ended := receive(t, r.done, limit); !ended {
		t.Fatalf("Run goes on %v after its ctx has ended", limit)
	}
	if !errors.Is(r.err, context.Canceled) {
		t.Errorf("Run ended with %v; want an error for its ctx", r.err)
	}
}

// depose releases the lock with the owner and the token of its holder.
func depose(t T, h *Harness, b driver.Backend) {
	at := inspect(t, b, "jobs")
	a := h.attempt(b, "jobs", h.lasting().TTL)
	a.Owner, a.Token = at.Owner, at.Token
	a.mustRelease(t)
}
