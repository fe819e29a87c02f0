package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func observeCases() []Case {
	return []Case{
		{
			Name: "E3 observe shows every change in order",
			Explain: `Observe shows the present holder, then each change of owner, token and value in order, and no holder when the lock is free:
an onlooker routes by it.`,
			Run: everyChange,
		},
		{
			Name:    "E3 observe shows expiry",
			Explain: `A holder that vanished is shown as gone when its TTL is over, although no client released it.`,
			Run:     observesExpiry,
		},
		{
			Name: "E3 tokens never go back in observe",
			Explain: `Changes that follow each other closely may be merged into the newest, but an older holder is never shown after a newer
one, and the last change is always shown.`,
			Run: neverBack,
		},
		{
			Name:    "E3 a slow reader sees the newest",
			Explain: `Newest wins: a reader that comes late finds the latest state, not a backlog, and delays no other reader.`,
			Run:     slowReader,
		},
		{
			Name:    "E3 elected, updated, vacant, stale in order with a server that stops",
			Explain: `The same with the real server: the leader proclaims and resigns, the server stops and starts, a leader is elected again.`,
			Needs:   []Need{NeedStore},
			Run: func(t T, h *Harness) {
				observesOutage(t, h, h.Store.Stop, func(t T) { h.Store.Start(t, true) })
			},
		},
		{
			Name: "E3 an observer whose question is lost says so, and goes on",
			Explain: `A server that stands still answers nothing, and no connection breaks. An observer says that it cannot see the store, and
shows the next leader when the server goes on: a question without a bound silences it for good.`,
			Needs: []Need{NeedStore},
			Run:   func(t T, h *Harness) { observesOutage(t, h, h.Store.Freeze, h.Store.Resume) },
		},
	}
}

type seen struct {
	mu  sync.Mutex
	all []driver.Holder
}

// observe calls the Observe method of b in the background, until the case ends.
func observe(t T, b driver.Backend, name string) *seen {
	s := &seen{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := driver.ObserverOf(b).Observe(ctx, name, func(h driver.Holder) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.all = append(s.all, h)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Observe ended with %v; want an error for its ctx", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func (s *seen) list() []driver.Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func (s *seen) String() string {
	var lines []string
	for i, h := range s.list() {
		lines = append(lines, fmt.Sprintf("%d. value %q, %s", i+1, h.Value, describe(h)))
	}
	return strings.Join(lines, "\n")
}

// The sees method waits until Observe's last holder has this owner and value. Owner "" means none.
func (s *seen) sees(t T, limit time.Duration, owner, value string) {
	for start := time.Now(); ; pause(t, pollEvery) {
		all := s.list()
		if len(all) > 0 {
			if last := all[len(all)-1]; last.Owner == owner && string(last.Value) == value && last.Held() == (owner != "") {
				return
			}
		}
		if ranSince(t, start) > limit {
			mistimed(t, limit, "after %v owner %q with value %q is not what was shown last:\n%s", limit, owner, value, s)
		}
	}
}

const observeLimit = 5 * time.Second

func everyChange(t T, h *Harness) {
	bs := h.backends(t, 2)
	s := observe(t, bs[1], "jobs")
	s.sees(t, observeLimit, "", "")
	for _, b := range bs {
		a := h.attempt(b, "jobs", h.lasting().TTL)
		a.Value = []byte("one")
		s.sees(t, observeLimit, "", "")
		a.must(t)
		s.sees(t, observeLimit, a.Owner, "one")
		a.Value = []byte("two")
		wantNil(t, a.proclaim(t), "Proclaim")
		s.sees(t, observeLimit, a.Owner, "two")
		a.mustRelease(t)
	}
	s.sees(t, observeLimit, "", "")
	if n := len(s.list()); n != 7 {
		t.Errorf("3 times no holder and 2 times two values of a holder are 7 changes, %d were shown:\n%s", n, s)
	}
}

func observesExpiry(t T, h *Harness) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.brief().TTL).must(t)
	granted := time.Now()
	s := observe(t, bs[1], "jobs")
	s.sees(t, a.TTL, a.Owner, "")
	s.sees(t, observeLimit+a.TTL, "", "")
	wantWithin(t, granted.Add(a.TTL), time.Now(), h.late()+tolerance, "what showed the expiry")
}

func neverBack(t T, h *Harness) {
	bs := h.backends(t, 2)
	s := observe(t, bs[1], "jobs")
	var last *attempt
	for i := range 60 {
		a := h.attempt(bs[0], "jobs", h.lasting().TTL)
		a.Value = fmt.Appendf(nil, "%d", i)
		last = a.must(t)
		if i%10 == 0 {
			s.sees(t, observeLimit, a.Owner, string(a.Value)) // so that every tenth value is emitted
		}
		if i < 59 {
			a.mustRelease(t)
		}
	}
	s.sees(t, observeLimit, last.Owner, "59")
	var token uint64
	for i, at := range s.list() {
		if at.Held() && at.Token < token {
			t.Errorf("change %d shows token %d after token %d", i+1, at.Token, token)
		}
		token = max(token, at.Token)
	}
}

// nextChange checks the next change. One that is Stale may still name the former leader.
func nextChange(t T, changes <-chan core.Change, limit time.Duration, want core.ChangeKind, value string) core.Change {
	c, ok := receive(t, changes, limit)
	if !ok {
		t.Fatalf("after %v no change came; want %v of value %q", limit, want, value)
	}
	if c.Kind != want || string(c.Leader.Value) != value && want != core.Stale {
		t.Fatalf("want %v of value %q, got %v of value %q, %s, error %v", want, value, c.Kind, c.Leader.Value, describe(c.Leader), c.Err)
	}
	return c
}

// observe returns the changes of a vacant election, of which the first is Vacant.
func (c *client) observe(t T, h *Harness) <-chan core.Change {
	ctx, cancel := context.WithCancel(t.Context())
	changes := c.elector(t, h.lastingTerm("nothing")).Observe(ctx)
	t.Cleanup(func() {
		cancel()
		for range changes { // until the channel is closed
		}
	})
	nextChange(t, changes, observeLimit, core.Vacant, "")
	return changes
}

// reigns campaigns, proclaims, and resigns. Each step must send a Change to the channel changes.
func (c *client) reigns(t T, h *Harness, changes <-chan core.Change) {
	term := c.campaign(t, 5*time.Second, h.lastingTerm("one"))
	if c := nextChange(t, changes, observeLimit, core.Elected, "one"); c.Leader.Token != term.Token() {
		t.Errorf("token %d was elected; Observe says %s", term.Token(), describe(c.Leader))
	}
	wantNil(t, term.Proclaim(t.Context(), []byte("two")), "Proclaim")
	nextChange(t, changes, observeLimit, core.Updated, "two")
	wantNil(t, term.Resign(t.Context()), "Resign")
	nextChange(t, changes, observeLimit, core.Vacant, "")
}

func slowReader(t T, h *Harness) {
	cs := h.clients(t, 2)
	changes := cs[1].observe(t, h)
	term := cs[0].campaign(t, 5*time.Second, h.lastingTerm("0"))
	const last = 30
	for i := range last {
		wantNil(t, term.Proclaim(t.Context(), []byte(strconv.Itoa(i+1))), "Proclaim")
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

// observesOutage observes while the store is away and when it is back, and a leader is elected then.
func observesOutage(t T, h *Harness, away, back func(T)) {
	cs := h.clients(t, 2)
	changes := cs[1].observe(t, h)
	cs[0].reigns(t, h, changes)
	away(t)
	nextChange(t, changes, 20*time.Second, core.Stale, "")
	back(t)
	nextChange(t, changes, 20*time.Second, core.Vacant, "")
	cs[0].campaign(t, 20*time.Second, h.lastingTerm("three"))
	nextChange(t, changes, observeLimit, core.Elected, "three")
}
