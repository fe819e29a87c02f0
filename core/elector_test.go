package core

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func electorOf(t *testing.T, c *Client, name string, opts *ElectorOptions) *Elector {
	t.Helper()
	e, err := c.Elector(name, opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestE1RunCampaignsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, rec := open(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		var causes []string
		var tokens []uint64
		err := electorOf(t, c, "jobs", nil).Run(ctx, func(term *Term) {
			tokens = append(tokens, term.Token())
			switch len(tokens) {
			case 1:
				f.forget("jobs")
				<-term.Context().Done()
			case 2:
				if err := term.Resign(t.Context()); err != nil {
					t.Error(err)
				}
				<-term.Context().Done()
			case 3: // fn returns although its term goes on
			case 4:
				cancel()
				<-term.Context().Done()
			}
			causes = append(causes, CauseName(term.Err()))
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		if !slices.Equal(causes, []string{"revoked", "released", "", "released"}) || !slices.IsSorted(tokens) {
			t.Errorf("causes %q, tokens %v", causes, tokens)
		}
		if owner := f.owner("jobs"); owner != "" {
			t.Errorf("still held by %q", owner)
		}
		// E4: fn is called exactly once for each term.
		rec.want(t, "jobs", EventAcquired, EventLost, EventAcquired, EventReleased,
			EventAcquired, EventReleased, EventAcquired, EventReleased)
	})
}

func TestE2RenewsUntilTheCallbackHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		err := electorOf(t, c, "jobs", nil).Run(ctx, func(term *Term) {
			cancel()
			<-term.Context().Done()
			before := f.count("renew")
			time.Sleep(time.Minute)
			if !term.Valid() || f.owner("jobs") != term.lease.owner || f.count("renew") < before+17 {
				t.Errorf("valid %v, held by %q, %d renewals", term.Valid(), f.owner("jobs"), f.count("renew")-before)
			}
			if n := f.count("release"); n != 0 {
				t.Error("resigned before the callback returned")
			}
		})
		if !errors.Is(err, context.Canceled) || f.owner("jobs") != "" {
			t.Errorf("Run: %v, held by %q", err, f.owner("jobs"))
		}
	})
}

func TestE2LostTermIsLeftToExpire(t *testing.T) {
	for _, opts := range []*ElectorOptions{
		{MaxHold: time.Second},
		{Healthy: func(context.Context) error { return errors.New("sick") }},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			c, _ := open(t, f)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			terms := 0
			var ended time.Time
			_ = electorOf(t, c, "jobs", opts).Run(ctx, func(term *Term) {
				if terms++; terms == 2 {
					if gap := time.Since(ended); gap < 5*time.Second {
						t.Errorf("the next term began %v after the loss: the lock was not left to expire", gap)
					}
					cancel()
				}
				<-term.Context().Done()
				if err := term.Proclaim(t.Context(), nil); terms == 1 && !errors.Is(err, ErrNotHeld) {
					t.Errorf("publishes after its term: %v", err)
				}
				ended = time.Now()
			})
			if terms != 2 || f.count("release") > 1 {
				t.Errorf("%d terms, %d releases", terms, f.count("release"))
			}
		})
	}
}

func TestRunResignsWhenTheCallbackPanics(t *testing.T) {
	f := newFake()
	c, _ := open(t, f)
	defer func() {
		if recover() != "boom" || f.owner("jobs") != "" {
			t.Errorf("held by %q after a panic", f.owner("jobs"))
		}
	}()
	_ = electorOf(t, c, "jobs", nil).Run(t.Context(), func(*Term) { panic("boom") })
}

func TestCampaignByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		e := electorOf(t, c, "jobs", &ElectorOptions{Value: []byte("one")})
		ctx, cancel := context.WithCancel(t.Context())
		term, err := e.Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel() // ctx only bounds the wait of Campaign
		time.Sleep(time.Minute)
		if term.Context().Err() != nil || !term.Valid() {
			t.Errorf("the term ended with its campaign's ctx: %v", term.Err())
		}
		if err := term.Proclaim(t.Context(), []byte("two")); err != nil {
			t.Error(err)
		}
		if h, err := e.Leader(t.Context()); err != nil || string(h.Value) != "two" || h.Token != term.Token() {
			t.Errorf("leader %+v, %v", h, err)
		}
		if err := term.Resign(t.Context()); err != nil || CauseName(term.Err()) != "released" {
			t.Errorf("%v, cause %v", err, term.Err())
		}
		if h, err := e.Leader(t.Context()); err != nil || h.Held() {
			t.Errorf("leader %+v after resigning, %v", h, err)
		}
		if err := term.Proclaim(t.Context(), nil); !errors.Is(err, ErrNotHeld) {
			t.Errorf("proclaim after resigning: %v", err)
		}
	})
}

func TestProclaimFindsTheTermLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		term, err := electorOf(t, c, "jobs", nil).Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := term.Proclaim(t.Context(), make([]byte, maxValue+1)); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		f.steal("jobs")
		if err := term.Proclaim(t.Context(), nil); !errors.Is(err, ErrNotHeld) || !isDone(term.Context().Done()) {
			t.Errorf("%v, done %v", err, isDone(term.Context().Done()))
		}
		if CauseName(term.Err()) != "taken" {
			t.Errorf("cause %v", term.Err())
		}
	})
}

func TestE3ObserveSeesEachKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var down atomic.Bool
		f.before = func(context.Context, string, driver.Request) error {
			if down.Load() {
				return errDown
			}
			return nil
		}
		c, _ := open(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		e := electorOf(t, c, "jobs", &ElectorOptions{Value: []byte("1")})
		changes := e.Observe(ctx)
		next := func(kind ChangeKind, value string) Change {
			t.Helper()
			ch := <-changes
			if ch.Kind != kind || string(ch.Leader.Value) != value {
				t.Fatalf("%v %q, want %v %q", ch.Kind, ch.Leader.Value, kind, value)
			}
			return ch
		}
		next(Vacant, "")
		term, err := e.Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next(Elected, "1")
		if err := term.Proclaim(ctx, []byte("2")); err != nil {
			t.Fatal(err)
		}
		next(Updated, "2")
		down.Store(true)
		began := time.Now()
		if ch := next(Stale, "2"); !errors.Is(ch.Err, ErrUnavailable) || ch.Since.Before(began) {
			t.Errorf("%+v", ch)
		}
		down.Store(false)
		next(Updated, "2")
		if err := term.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		next(Vacant, "")
		cancel()
		if _, open := <-changes; open {
			t.Error("a change after ctx ended")
		}
	})
}

func TestE3NewestWins(t *testing.T) {
	held := func(token uint64, value string) driver.Holder {
		return driver.Holder{Owner: "o", Token: token, Value: []byte(value), TTL: time.Second}
	}
	cases := []struct {
		name string
		read []driver.Holder // holders that are reported and read one by one
		seen []driver.Holder // holders that are reported after the holders in read, but not read
		want ChangeKind      // kind of the change that is read at the end; 0 for none
		last uint64
	}{
		{"elected then updated", nil, []driver.Holder{held(5, "a"), held(5, "b")}, Elected, 5},
		{"two terms", []driver.Holder{held(5, "a")}, []driver.Holder{{}, held(6, "a")}, Elected, 6},
		{"a whole term", []driver.Holder{{}}, []driver.Holder{held(5, "a"), {}}, 0, 0},
		{"value and back", []driver.Holder{held(5, "a")}, []driver.Holder{held(5, "b"), held(5, "a")}, 0, 0},
		{"older token", []driver.Holder{held(5, "a")}, []driver.Holder{held(4, "z")}, 0, 0},
		{"no news", []driver.Holder{held(5, "a")}, []driver.Holder{held(5, "a")}, 0, 0},
		{"update", []driver.Holder{held(5, "a")}, []driver.Holder{held(5, "b")}, Updated, 5},
		{"vacant at first", nil, []driver.Holder{{}}, Vacant, 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			o := &observer{out: make(chan Change, 1)}
			for _, h := range tc.read {
				o.see(h)
				<-o.out
			}
			for _, h := range tc.seen {
				o.see(h)
			}
			select {
			case ch := <-o.out:
				if ch.Kind != tc.want || ch.Leader.Token != tc.last {
					t.Errorf("%v of token %d, want %v of %d", ch.Kind, ch.Leader.Token, tc.want, tc.last)
				}
			default:
				if tc.want != 0 {
					t.Errorf("nothing, want %v", tc.want)
				}
			}
		})
	}
}
