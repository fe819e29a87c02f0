package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/plugins/memory"
)

// TestDashboardAsksForWhatThereIs: every metric and label in the queries of the
// dashboard stands on the metrics page of a process that has seen everything.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	recorder, handler, err := newMetrics()
	if err != nil {
		t.Fatal(err)
	}
	for kind := core.EventAcquired; kind <= core.EventAcquireFailed; kind++ {
		recorder.OnEvent(core.Event{Kind: kind, Backend: "memory", Name: "a", Owner: "o", Time: time.Now(), Err: core.ErrExpired})
	}
	c := core.New(memory.NewStore().Open(), nil)
	defer c.Close(t.Context())
	e, err := c.Elector("leader", nil)
	if err != nil {
		t.Fatal(err)
	}
	go recorder.Watch(t.Context(), e)
	page := ""
	for end := time.Now().Add(30 * time.Second); !strings.Contains(page, "lock_election_changes_total"); {
		if time.Now().After(end) {
			t.Fatalf("no change of leader on the page:\n%s", page)
		}
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // the observer sees the newest only
		if err := term.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		page = show(handler)
	}

	text, err := os.ReadFile("../../dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`\b(lock|error)_[a-z_]+`)
	asked := 0
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			for _, word := range words.FindAllString(target.Expr, -1) {
				asked++
				if !regexp.MustCompile(`\b` + word + `\b`).MatchString(page) {
					t.Errorf("panel %q asks for %s, which is not on the page", p.Title, word)
				}
			}
		}
	}
	if asked < len(dashboard.Panels) || asked == 0 {
		t.Errorf("%d panels ask for %d words", len(dashboard.Panels), asked)
	}
}

func show(page http.Handler) string {
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}
