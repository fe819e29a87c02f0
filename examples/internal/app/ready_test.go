package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/memory"
)

// gated is a backend whose store can be away for checks.
type gated struct {
	driver.Backend
	away atomic.Bool
}

func (g *gated) Check(ctx context.Context) error {
	if g.away.Load() {
		return errors.New("connection refused")
	}
	return g.Backend.Check(ctx)
}

// TestReady: a process is ready when its store answers or it sees a leader, and
// says why not otherwise.
func TestReady(t *testing.T) {
	var r readiness
	probe := func() (int, string) {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ready", nil))
		return w.Code, w.Body.String()
	}
	if code, _ := probe(); code != http.StatusServiceUnavailable {
		t.Errorf("without a plugin: %d", code)
	}
	b := &gated{Backend: memory.NewStore().Open()}
	i := Instance{Name: "one", Client: core.New(b, nil), leader: &sight{}}
	defer i.Client.Close(context.Background())
	r.add(i)
	if code, text := probe(); code != http.StatusOK {
		t.Errorf("with a store: %d, %s", code, text)
	}
	b.away.Store(true)
	if code, text := probe(); code != http.StatusServiceUnavailable || !strings.Contains(text, "one") || !strings.Contains(text, "connection refused") {
		t.Errorf("without a store: %d, %s", code, text)
	}
	e, err := i.Client.Elector("leader", nil)
	if err != nil {
		t.Fatal(err)
	}
	followed := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { i.Follow(ctx, e); close(followed) }()
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	until := func(want int, when string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			if code, text := probe(); code == want {
				return
			} else if time.Now().After(end) {
				t.Fatalf("%s: %d, %s", when, code, text)
			}
		}
	}
	until(http.StatusOK, "with a leader")
	if err := term.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(http.StatusServiceUnavailable, "without a leader")
	cancel()
	<-followed
}
