package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func renewsUntilReturn(t T, h *Harness) {
	cs := h.clients(t, 2)
	o := core.ElectorOptions{TTL: h.ttl(2 * time.Second), Value: []byte("one")}
	returns := make(chan struct{})
	release := sync.OnceFunc(func() { close(returns) })
	t.Cleanup(release)
	r := cs[0].run(t, "jobs", o, func() { <-returns })
	t.Cleanup(release) // before the clean-up of run, which waits for the callback
	eventually(t, 5*time.Second, "the candidate leads", func() bool { return r.begun() == 1 })
	term := r.term(0)
	r.cancel()
	eventually(t, time.Second, "the term's ctx ends", func() bool { return term.Context().Err() != nil })
	h.staysHeld(t, cs[1].b, o.TTL)
	release()
	r.end(t, 5*time.Second)
	h.attempt(cs[1].b, "jobs", o.TTL).must(t)
}

// staysHeld fails if another gets the lock while a callback that has not
// returned holds it by renewals: for longer than its TTL.
func (h *Harness) staysHeld(t T, b driver.Backend, ttl time.Duration) {
	t.Helper()
	throughout(t, ttl*3/2, func() string {
		other := h.attempt(b, "jobs", ttl)
		if err := other.try(t); !errors.Is(err, driver.ErrHeld) {
			mistimed(t, ttl, "the callback has not returned, and another asked and got token %d, %v", other.Token, err)
		}
		return ""
	})
}

func closeWaits(t T, h *Harness) {
	cs := h.clients(t, 2)
	o := core.LockOptions{TTL: h.ttl(2 * time.Second)}
	lock := cs[0].lock(t, "jobs", o)
	ending, returns := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(returns) })
	ended, closed := make(chan error, 1), make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	var begun atomic.Bool
	go func() {
		ended <- lock.Do(ctx, func(ctx context.Context, _ *core.Lease) error {
			begun.Store(true)
			<-ctx.Done()
			close(ending)
			<-returns
			return nil
		})
	}()
	t.Cleanup(func() { release(); <-ended; cancel() })
	eventually(t, 5*time.Second, "the function runs", begun.Load)
	go func() { closed <- cs[0].Close(ctx) }()
	if _, ended := receive(t, ending, time.Second); !ended {
		t.Fatalf("Close does not end the ctx of the function")
	}
	h.staysHeld(t, cs[1].b, o.TTL)
	release()
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
}

func leftToExpire(t T, h *Harness) {
	c := h.client(t)
	o := core.ElectorOptions{TTL: h.ttl(4 * time.Second), MaxHold: 300 * time.Millisecond}
	term := c.campaign(t, "jobs", 5*time.Second, o)
	if _, ended := receive(t, term.Context().Done(), o.MaxHold+2*time.Second); !ended {
		t.Fatalf("the term goes on after MaxHold %v", o.MaxHold)
	}
	if !errors.Is(term.Err(), core.ErrMaxHold) || term.Context().Err() == nil {
		t.Errorf("after MaxHold the cause is %v and the ctx %v", term.Err(), term.Context().Err())
	}
	throughout(t, 500*time.Millisecond, func() string {
		if at := inspect(t, c.b, "jobs"); at.Token != core.GrantNumber(term.Token()) || !at.Held() {
			return fmt.Sprintf("the term of token %d was not left to expire: %s", term.Token(), describe(at))
		}
		return ""
	})
}

func oneStartOneStop(t T, h *Harness) {
	cs := h.clients(t, 2)
	o := core.ElectorOptions{TTL: h.ttl(time.Second)}
	start, r := time.Now(), cs[0].run(t, "jobs", o, nothing)
	const terms = 4
	for i := range terms {
		eventually(t, 4*o.TTL+5*time.Second, fmt.Sprintf("term %d begins", i), func() bool { return r.begun() > i })
		if i < terms-1 {
			depose(t, h, cs[1].b, "jobs")
		}
	}
	pause(t, o.TTL) // a second start of the last term would come now
	r.end(t, 5*time.Second)
	if r.begun() != terms || r.ended != terms {
		mistimed(t, time.Since(start), "%d terms began and %d ended; want %d", r.begun(), r.ended, terms)
	}
	seen := map[uint64]bool{}
	for i, term := range r.terms {
		if seen[term.Token()] {
			t.Errorf("term %d began a second time, with token %d", i, term.Token())
		}
		seen[term.Token()] = true
		if term.Valid() || term.Err() == nil {
			t.Errorf("term %d of token %d is over, and Valid is %t, Err %v", i, term.Token(), term.Valid(), term.Err())
		}
	}
}
