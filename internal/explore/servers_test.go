package explore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// TestServerActions: each action that is done to servers is injected and healed;
// then they serve a host, and are as they began.
func TestServerActions(t *testing.T) {
	for _, of := range kinds.All() {
		for _, setting := range of.SettingNames() {
			if !of.InHost() {
				t.Run(of.Name+"/"+setting, func(t *testing.T) { testServerActions(t, of, setting) })
			}
		}
	}
}

func testServerActions(t *testing.T, of *servers.Kind, setting string) {
	t.Parallel()
	w, start := openSystem(t, of.Name, servers.Requirements{Setting: setting, Needs: []servers.Capability{servers.CapKeeps, servers.CapClock}})
	h := start(t, "")
	for _, a := range serverActions {
		if a.fits(of.Name, setting, of.Lacks) == "" {
			t.Run(a.Name, func(t *testing.T) { testServerAction(t, w, h, a) })
		}
	}
	if err := w.Setup.EndBackground(); err != nil {
		t.Error(err)
	}
	closeHost(t, h)
}

func testServerAction(t *testing.T, w *System, h *Host, a Action) {
	works(t, h, "before")
	e := Event{Action: a.Name, Lasts: Duration(min(a.Lasts[0], 100*time.Millisecond)), Amount: 0.9}
	if a.On == OnServer {
		e.Target = len(w.Setup.Servers) - 1
	}
	if err := a.Inject(t.Context(), w, e); err != nil {
		t.Fatal(err)
	}
	proc.Sleep(t.Context(), time.Duration(e.Lasts))
	if a.Heal != nil {
		if err := a.Heal(t.Context(), w, e); err != nil {
			t.Error(err)
		}
	}
	works(t, h, "after")
	if a.Needs[len(a.Needs)-1] == servers.CapClock {
		if w.Healthy(t.Context()) == nil {
			t.Error("a clock that was moved is healthy")
		}
		if err := w.Again(t.Context()); err != nil {
			t.Error(err)
		}
	}
	err := errors.New("not asked")
	eventually(t, "the servers are healthy", func() bool {
		err = w.Healthy(t.Context())
		return err == nil
	})
	if err != nil {
		t.Error(fmt.Errorf("after %s: %w", a.Name, err))
	}
}
