package endurance_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/faults"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// TestChurn kills plugins and hosts while other hosts acquire locks, release locks and campaign. It
// checks that no process, file or lock is left, and that no promise (claim) is broken.
func TestChurn(t *testing.T) {
	for _, k := range served(2) {
		t.Run(k.Name, func(t *testing.T) {
			var churn []faults.Event
			for i, action := range []string{"kill-plugin", "kill-host", "crash-loop", "kill-both", "kill-plugin", "kill-host"} {
				e := faults.Event{Action: action, Target: i, At: faults.Duration(i+1) * faults.Duration(500*time.Millisecond)}
				if action == "crash-loop" {
					e.Lasts = faults.Duration(time.Second)
				}
				churn = append(churn, e)
			}
			play(t, k, k.Settings[0].Name, churn)
		})
	}
}

// TestPlannedFailover checks that leases of 10 s and election candidates survive when an operator
// makes the replica the primary server, and when the operator reverses this.
func TestPlannedFailover(t *testing.T) {
	for _, k := range kinds.All() {
		if k.Setting(servers.WithReplica).Name == "" {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			play(t, k, servers.WithReplica, []faults.Event{
				{Action: k.Name + "-failover", At: faults.Duration(time.Second), Lasts: faults.Duration(3 * time.Second)},
			})
		})
	}
}

// play runs seven hosts while the events happen, and judges what the hosts report.
func play(t *testing.T, k *servers.Kind, setting string, events []faults.Event) {
	t.Helper()
	times := func(least, most time.Duration) faults.Bounds {
		return faults.Bounds{faults.Duration(least), faults.Duration(most)}
	}
	s := faults.Schedule{
		Backend: k.Name, Setting: setting, Seed: 1, Length: faults.Duration(6 * time.Second), Events: events,
		Groups: []faults.Group{
			{Kind: results.OpLock, Names: 4, TTL: faults.Duration(5 * time.Second), Limit: times(10*time.Second, 10*time.Second), Hold: times(0, time.Second)},
			{Kind: results.OpLead, Names: 1, TTL: faults.Duration(5 * time.Second), Limit: times(time.Minute, time.Minute), Hold: times(time.Second, 2*time.Second)},
			{Kind: results.OpLock, Names: 70, TTL: faults.Duration(10 * time.Second), Limit: times(time.Minute, time.Minute), Hold: times(5*time.Second, 8*time.Second)},
		},
	}
	for range 7 {
		s.Hosts = append(s.Hosts, faults.HostPlan{Callers: []int{2, 1, 10}})
	}
	path := buildPlugin(t, k.Name)
	d, err := plugin.Describe(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := faults.NewReplayer(faults.Described(path, d))
	if err != nil {
		t.Fatal(err)
	}
	played, err := r.Play(t.Context(), faults.Reproducer{Schedule: s}, count(1, 10))
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	for _, v := range played.Violations {
		t.Errorf("%s: %s", v.Rule, v.What)
	}
	if played.Grants == 0 {
		t.Error("nothing was granted")
	}
	t.Logf("%d grants in %d plays, %d left unjudged", played.Grants, played.Runs, played.Unjudged)
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
