package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func (c *client) elector(t T, name string, o core.ElectorOptions) *core.Elector {
	t.Helper()
	e, err := c.Elector(name, &o)
	if err != nil {
		t.Fatalf("Elector(%q, %+v): %v", name, o, err)
	}
	return e
}

// campaign waits for a term, at most for limit.
func (c *client) campaign(t T, name string, limit time.Duration, o core.ElectorOptions) *core.Term {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	term, err := c.elector(t, name, o).Campaign(ctx)
	if err != nil {
		t.Fatalf("Campaign(%q): %v%s", name, err, c.holding(t, name))
	}
	return term
}

func (h *Harness) lastingTerm(value string) core.ElectorOptions {
	return core.ElectorOptions{TTL: h.lasting().TTL, Value: []byte(value)}
}

func mustProclaim(t T, term *core.Term, value string) {
	t.Helper()
	if err := term.Proclaim(t.Context(), []byte(value)); err != nil {
		t.Fatalf("Proclaim(%q): %v", value, err)
	}
}

func mustResign(t T, term *core.Term) {
	t.Helper()
	if err := term.Resign(t.Context()); err != nil {
		t.Fatalf("Resign: %v", err)
	}
}

// runner is an Elector.Run in the background.
type runner struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done

	mu     sync.Mutex
	terms  []*core.Term // begun
	ended  int          // callbacks that returned
	atOnce int          // callbacks under way
}

// run starts Elector.Run with a callback that lasts as long as its term, and
// then calls after.
func (c *client) run(t T, name string, o core.ElectorOptions, after func()) *runner {
	t.Helper()
	e := c.elector(t, name, o)
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
			r.atOnce--
		})
	}()
	t.Cleanup(func() { cancel(); <-r.done })
	return r
}

func (r *runner) begin(t T, term *core.Term) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.terms = append(r.terms, term)
	if r.atOnce++; r.atOnce > 1 {
		t.Errorf("%d callbacks of one Run are under way", r.atOnce)
	}
}

func (r *runner) begun() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.terms)
}

func (r *runner) term(i int) *core.Term {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms[i]
}

// end ends Run and waits for it.
func (r *runner) end(t T, limit time.Duration) {
	t.Helper()
	r.cancel()
	if _, ended := receive(t, r.done, limit); !ended {
		t.Fatalf("Run goes on %v after its ctx has ended", limit)
	}
	if !errors.Is(r.err, context.Canceled) {
		t.Errorf("Run ended with %v; want an error for its ctx", r.err)
	}
}

// depose ends the present lease of name in the store, as its owner would.
func depose(t T, h *Harness, b driver.Backend, name string) {
	t.Helper()
	at := inspect(t, b, name)
	a := h.attempt(b, name, h.lasting().TTL)
	a.Owner, a.Token = at.Owner, at.Token
	a.mustRelease(t)
}
