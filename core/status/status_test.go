package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/status"
	"github.com/lockbench/lockbench/plugins/memory"
)

// gated is a backend. If away is set, its Check fails. If slow is set, its Check waits until ctx
// ends, and fails. If hidden is set, its Inspect fails.
type gated struct {
	driver.Backend
	away, slow, hidden atomic.Bool
}

var errAway = fmt.Errorf("%w: connection refused", driver.ErrUnavailable)

func (g *gated) Check(ctx context.Context) error {
	if g.away.Load() {
		return errAway
	}
	if g.slow.Load() {
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return g.Backend.Check(ctx)
}

func (g *gated) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	if g.hidden.Load() {
		return driver.Holder{}, errAway
	}
	return g.Backend.Inspect(ctx, name)
}

// Properties declares no capability, so that package core polls Inspect to observe an election.
func (g *gated) Properties() driver.Properties {
	p := g.Backend.Properties()
	p.Capabilities = nil
	return p
}

func get(h *status.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

type host struct {
	status.Handler
	b        *gated
	client   *core.Client
	election *core.Elector
	stop     func()
}

func newHost(t *testing.T) *host {
	h := &host{b: &gated{Backend: memory.NewStore().Open()}}
	h.client = core.New(h.b, &core.Options{Label: "host-1"})
	var err error
	if h.election, err = h.client.Elector("jobs", &core.ElectorOptions{Value: []byte("10.0.0.7")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	h.stop = func() {
		cancel()
		<-ended
		if err := h.client.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	go func() { h.Follow(ctx, h.client, h.election); close(ended) }()
	return h
}

// TestReady checks that a host is ready if its store answers or if the
// host sees a leader. Otherwise /ready must give the reason.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		defer h.stop()
		want := func(when string, code int, text string) {
			t.Helper()
			time.Sleep(time.Second) // time for the observer to see the leader
			if got, body := get(&h.Handler, "/probes/ready"); got != code || !strings.Contains(body, text) {
				t.Errorf("%s: %d, %q", when, got, body)
			}
		}
		want("without a client", http.StatusServiceUnavailable, "no client")
		h.Add(h.client)
		want("with a store", http.StatusOK, "ready")
		h.b.away.Store(true)
		want("without a store", http.StatusServiceUnavailable, "connection refused")
		term, err := h.election.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want("with a leader", http.StatusOK, "ready")
		other := core.New(&gated{Backend: memory.NewStore().Open()}, nil)
		defer other.Close(context.Background())
		h.Add(other)
		h.b.away.Store(false)
		h.b.slow.Store(true)
		want("with a leader, and with a slow store beside another one", http.StatusOK, "ready")
		h.b.slow.Store(false)
		h.b.away.Store(true)
		h.b.hidden.Store(true)
		want("when the leader is out of sight", http.StatusServiceUnavailable, "connection refused")
		h.b.hidden.Store(false)
		want("when it is seen again", http.StatusOK, "ready")
		if err := term.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		want("without a leader", http.StatusServiceUnavailable, "connection refused")
	})
}

func TestLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		defer h.stop()
		look := func(code int) (l status.Leader) {
			t.Helper()
			time.Sleep(time.Second)
			got, body := get(&h.Handler, "/leader?election=jobs")
			if err := json.Unmarshal([]byte(body), &l); err != nil || got != code {
				t.Errorf("%d, %q: %v", got, body, err)
			}
			return l
		}
		if l := look(http.StatusServiceUnavailable); l.Held || l.Since == nil || l.Election != "jobs" {
			t.Errorf("without a leader: %+v", l)
		}
		began := time.Now()
		term, err := h.election.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		first := look(http.StatusOK)
		if !first.Held || first.Label != "host-1" || string(first.Value) != "10.0.0.7" ||
			first.Token != term.Token() || first.TokenText != fmt.Sprint(term.Token()) || first.Since.Sub(began) > time.Second {
			t.Errorf("with a leader: %+v", first)
		}
		if err := term.Proclaim(t.Context(), []byte("moved")); err != nil {
			t.Fatal(err)
		}
		if l := look(http.StatusOK); string(l.Value) != "moved" || !l.Since.Equal(*first.Since) {
			t.Errorf("with another value: %+v", l)
		}
		h.b.hidden.Store(true)
		if l := look(http.StatusServiceUnavailable); !l.Held || l.StaleSince == nil || !strings.Contains(l.Error, "refused") {
			t.Errorf("out of sight: %+v", l)
		}
		h.b.hidden.Store(false)
		if l := look(http.StatusOK); l.StaleSince != nil || !l.Since.Equal(*first.Since) {
			t.Errorf("seen again: %+v", l)
		}
		if code, _ := get(&h.Handler, "/leader?election=others"); code != http.StatusNotFound {
			t.Errorf("an election that is not followed: %d", code)
		}
		if code, _ := get(&h.Handler, "/other"); code != http.StatusNotFound {
			t.Errorf("another path: %d", code)
		}
		if err := term.Resign(t.Context()); err != nil && !errors.Is(err, core.ErrNotHeld) {
			t.Fatal(err)
		}
	})
}

// TestFollowedNoMore checks that /leader answers 503 after the host stops following the election.
func TestFollowedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		if _, err := h.election.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		h.stop()
		if code, body := get(&h.Handler, "/leader"); code != http.StatusServiceUnavailable {
			t.Errorf("%d, %s", code, body)
		}
	})
}
