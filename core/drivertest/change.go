package drivertest

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lockbench/lockbench/core"
)

// nextChange waits for the next change, which must be of that kind and value.
func nextChange(t T, changes <-chan core.Change, limit time.Duration, want core.ChangeKind, value string) core.Change {
	t.Helper()
	c, ok := receive(t, changes, limit)
	if !ok {
		t.Fatalf("after %v no change came; want %v of value %q", limit, want, value)
	}
	if c.Kind != want || string(c.Leader.Value) != value {
		t.Fatalf("want %v of value %q, got %v of value %q, %s, error %v", want, value, c.Kind, c.Leader.Value, describe(c.Leader), c.Err)
	}
	return c
}

func (c *client) observe(t T, name string, o core.ElectorOptions) (<-chan core.Change, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes := c.elector(t, name, o).Observe(ctx)
	t.Cleanup(func() {
		cancel()
		for range changes { // ends when it is closed
		}
	})
	return changes, cancel
}

// reigns lets c be elected, proclaim and resign while changes show it, and
// returns the term's token.
func (c *client) reigns(t T, h *Harness, changes <-chan core.Change) uint64 {
	t.Helper()
	term := c.campaign(t, "jobs", 5*time.Second, h.lastingTerm("one"))
	if c := nextChange(t, changes, observeLimit, core.Elected, "one"); c.Leader.Token != term.Token() {
		t.Errorf("token %d was elected; Observe says %s", term.Token(), describe(c.Leader))
	}
	mustProclaim(t, term, "two")
	nextChange(t, changes, observeLimit, core.Updated, "two")
	mustResign(t, term)
	nextChange(t, changes, observeLimit, core.Vacant, "")
	return term.Token()
}

func observeChannel(t T, h *Harness) {
	cs := h.clients(t, 2)
	changes, cancel := cs[1].observe(t, "jobs", h.lastingTerm("nothing"))
	nextChange(t, changes, observeLimit, core.Vacant, "")
	first := cs[0].reigns(t, h, changes)
	h.wantHigher(t, cs[0].reigns(t, h, changes), first)
	cancel()
	for range changes { // hangs unless the channel is closed
	}
}

func slowReader(t T, h *Harness) {
	cs := h.clients(t, 2)
	changes, _ := cs[1].observe(t, "jobs", h.lastingTerm("nothing"))
	nextChange(t, changes, observeLimit, core.Vacant, "")
	term := cs[0].campaign(t, "jobs", 5*time.Second, h.lastingTerm("0"))
	const last = 30
	for i := range last {
		mustProclaim(t, term, strconv.Itoa(i+1))
	}
	pause(t, 500*time.Millisecond)
	for read := 1; ; read++ {
		c, ok := receive(t, changes, observeLimit)
		if !ok {
			t.Fatalf("the newest value was not shown")
		}
		if string(c.Leader.Value) == fmt.Sprint(last) {
			return
		}
		if read > 5 {
			t.Fatalf("a late reader finds a backlog of more than %d changes", read)
		}
	}
}

// nextStale waits for Stale; what is known of the former leader may be in it.
func nextStale(t T, changes <-chan core.Change) core.Change {
	t.Helper()
	c, ok := receive(t, changes, 20*time.Second)
	if !ok {
		t.Fatalf("after 20s Observe does not say that the store is away")
	}
	if c.Kind != core.Stale {
		t.Fatalf("want stale, got %v of value %q, %s", c.Kind, c.Leader.Value, describe(c.Leader))
	}
	return c
}

func observeServer(t T, h *Harness) {
	cs := h.clients(t, 2)
	changes, _ := cs[1].observe(t, "jobs", h.lastingTerm("nothing"))
	nextChange(t, changes, observeLimit, core.Vacant, "")
	cs[0].reigns(t, h, changes)
	h.Store.Stop(t)
	nextStale(t, changes)
	h.Store.Start(t, true)
	nextChange(t, changes, 20*time.Second, core.Vacant, "")
	cs[0].campaign(t, "jobs", 20*time.Second, h.lastingTerm("three"))
	nextChange(t, changes, observeLimit, core.Elected, "three")
}

func observeFrozen(t T, h *Harness) {
	cs := h.clients(t, 2)
	changes, _ := cs[1].observe(t, "jobs", h.lastingTerm("nothing"))
	nextChange(t, changes, observeLimit, core.Vacant, "")
	h.Store.Freeze(t)
	t.Cleanup(func() { h.Store.Resume(t) })
	nextStale(t, changes)
	h.Store.Resume(t)
	nextChange(t, changes, 20*time.Second, core.Vacant, "")
	cs[0].campaign(t, "jobs", 20*time.Second, h.lastingTerm("next"))
	nextChange(t, changes, observeLimit, core.Elected, "next")
}
