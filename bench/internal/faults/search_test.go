package faults

import (
	"cmp"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// TestPlantedBugsAreFound: each, without being told what to look for, and in a
// reproducer of two actions at most, of which one that is repeated counts once;
// nothing in a backend that has none. The short test looks for one of them,
// among the actions that can show it.
func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	if s, err := redisserver.Start(t.Context(), nil); err != nil {
		servers.Missing(t, "redis", err)
	} else if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := plugintest.Build(t, module+"bench/internal/faults/planted")
	o := Options{Length: 260 * time.Second, Seed: 1, Log: t.Logf, Settings: []string{"plain"}, Players: 5, Shrink: 160 * time.Second}
	bugs := []string{"pause", "token", "resurrect", "release", "early"}
	if os.Getenv("LOCKBENCH_LONG") == "" {
		o.Players, o.Length, o.Shrink, o.Runs, o.Actions = 1, 2*time.Minute, 20*time.Second, 1, []string{"freeze-host", "kill-plugin"}
		bugs = []string{"release"}
	}
	for _, bug := range bugs {
		t.Run(bug, func(t *testing.T) {
			began := time.Now()
			found, err := Search(t.Context(), Backend{Name: "redis", Path: path, Fencing: "durable", Config: driver.Config{"bug": bug}}, o)
			if err != nil {
				t.Fatal(err)
			}
			if len(found.Reproducers) == 0 {
				t.Fatalf("nothing was found in %d schedules, %d grants: %s", found.Schedules, found.Grants, found.Failure)
			}
			reproducer := slices.MaxFunc(found.Reproducers, func(a, b Reproducer) int { return cmp.Compare(a.Shown, b.Shown) })
			t.Logf("after %d schedules, %v with shrinking: %s", found.Schedules, time.Since(began).Round(time.Second), reproducer.Text())
			actions := map[string]bool{}
			for _, e := range reproducer.Schedule.Events {
				actions[e.Action] = true
			}
			if len(actions) > 2 {
				t.Errorf("%d actions are left", len(actions))
			}
		})
	}
}
