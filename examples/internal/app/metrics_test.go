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

// TestDashboardAsksForWhatThereIs checks that each metric and label in the dashboard's queries
// is on the metrics page of a process that has recorded an event of every kind.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	recorder, handler, err := newMetrics()
	if err != nil {
		t.Fatal(err)
	}
	for kind := core.EventAcquired; kind <= core.EventAcquireFailed; kind++ {
		recorder.OnEvent(core.Event{Kind: kind, Backend: "memory", Name: "a", Owner: "o", Time: time.Now(), Slack: time.Second, Err: core.ErrExpired})
	}
	c := core.New(memory.NewStore().Open(), nil)
	defer c.Close(t.Context())
	e, err := c.Elector("leader", nil)
	if err != nil {
		t.Fatal(err)
	}
	go recorder.Watch(t.Context(), e)
	page := ""
	for end := time.Now().Add(30 * time.Second); !strings.Contains(page, "lock_election_vacancy"); {
		if time.Now().After(end) {
			t.Fatalf("no change of leader on the page:\n%s", page)
		}
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // so that the observer sees the term before it ends
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

// TestAlarmsHaveSeriesFromTheStart checks that the metrics page has the
// metrics of all alarms in docs/operations.md before anything has gone wrong.
func TestAlarmsHaveSeriesFromTheStart(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "Worth an alarm")
	table, _, _ = strings.Cut(table, "\n## ")
	wanted := regexp.MustCompile(`\block_[a-z_]+`).FindAllString(table, -1)
	if len(wanted) < 5 {
		t.Fatalf("the alarms are for %q", wanted)
	}
	recorder, handler, err := newMetrics()
	if err != nil {
		t.Fatal(err)
	}
	c := core.New(memory.NewStore().Open(), &core.Options{OnEvent: recorder.OnEvent})
	defer c.Close(t.Context())
	e, err := c.Elector("leader", &core.ElectorOptions{TTL: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Campaign(t.Context()); err != nil {
		t.Fatal(err)
	}
	page := ""
	for end := time.Now().Add(30 * time.Second); !strings.Contains(page, "lock_renew_slack"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no renewal on the page:\n%s", page)
		}
		page = show(handler)
	}
	for _, word := range wanted {
		if !regexp.MustCompile(`(?m)[{,]` + word + `=|^` + word + `(_bucket)?\{`).MatchString(page) {
			t.Errorf("%s is not on the page", word)
		}
	}
	for _, want := range []string{`error_type="unreachable"`, `lock_name="leader"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
}

func show(page http.Handler) string {
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}
