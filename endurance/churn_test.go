package endurance_test

import (
	"os"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/faults"
	"github.com/lockbench/lockbench/internal/results"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// TestChurn kills plugins and hosts while the others acquire, release and
// campaign: no process, no file and no lock may stay behind, and what any
// schedule is judged by holds.
func TestChurn(t *testing.T) {
	each(t, func(t *testing.T, w system, binary string, _ driver.Config) {
		s := churn(w.name)
		if kinds.Of(w.name).Lacks[servers.CapRival] != "" {
			t.Skip("a store that dies with its plugin has one host, and nothing to be killed")
		}
		d, err := plugin.Describe(t.Context(), binary)
		if err != nil {
			t.Fatal(err)
		}
		b := faults.Backend{Name: w.name, Path: binary, Fencing: string(d.Properties.Fencing)}
		played, err := faults.Play(t.Context(), faults.Reproducer{Schedule: s}, b, faults.Options{}, count(1, 10))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range played.Violations {
			t.Errorf("%s: %s", v.Rule, v.What)
		}
		if played.Grants == 0 {
			t.Error("nothing was granted")
		}
		t.Logf("%d grants in %d plays, %d left unjudged", played.Grants, played.Runs, played.Unjudged)
	})
}

// churn is a schedule in which every host but one loses its plugin, or its life.
func churn(backend string) faults.Schedule {
	times := func(least, most time.Duration) faults.Bounds {
		return faults.Bounds{faults.Duration(least), faults.Duration(most)}
	}
	s := faults.Schedule{
		Backend: backend, Setting: kinds.Of(backend).Settings[0].Name, Seed: 1, Length: faults.Duration(6 * time.Second),
		Groups: []faults.Group{
			{Kind: results.OpLock, Names: 4, TTL: faults.Duration(5 * time.Second), Limit: times(10*time.Second, 10*time.Second), Hold: times(0, time.Second)},
			{Kind: results.OpLead, Names: 1, TTL: faults.Duration(5 * time.Second), Limit: times(time.Minute, time.Minute), Hold: times(time.Second, 2*time.Second)},
		},
	}
	for i, action := range []string{"kill-plugin", "kill-host", "crash-loop", "kill-both", "kill-plugin", "kill-host"} {
		s.Hosts = append(s.Hosts, faults.HostPlan{Callers: []int{2, 1}})
		e := faults.Event{Action: action, Target: i, At: faults.Duration(i+1) * faults.Duration(500*time.Millisecond)}
		if action == "crash-loop" {
			e.Lasts = faults.Duration(time.Second)
		}
		s.Events = append(s.Events, e)
	}
	s.Hosts = append(s.Hosts, faults.HostPlan{Callers: []int{2, 1}})
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after 30s: %s", what)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
