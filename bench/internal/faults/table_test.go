package faults

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

func played(t *testing.T, p Plan) (rounds []results.Round) {
	t.Helper()
	err := Run(t.Context(), p, func(string) {}, func(r results.Round) error {
		rounds = append(rounds, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rounds
}

// verdictsOn plays faults. The result starved is the time for which hosts got no processor.
func verdictsOn(t *testing.T, b Backend, faults ...string) (cells []check.Cell, starved time.Duration) {
	t.Helper()
	p := Plan{Backends: []Backend{b}, Rounds: 1}
	for _, f := range All() {
		if slices.Contains(faults, f.Name) {
			p.Faults = append(p.Faults, f)
		}
	}
	if len(p.Faults) != len(faults) {
		t.Fatalf("some of the faults %v do not exist", faults)
	}
	rounds := played(t, p)
	for _, r := range rounds {
		if r.Failure != "" {
			t.Errorf("%s under %s: %s", r.Backend, r.Fault, r.Failure)
		}
		starved += starvation(r)
	}
	return check.Cells(rounds), starved
}

// starvation returns the sum of the times for which hosts of a round got no processor. It leaves
// out the times for which the fault froze a host, because hosts report these as starved, too.
func starvation(r results.Round) (sum time.Duration) {
	for _, h := range r.Halts {
		frozen := slices.ContainsFunc(r.Halts, func(f results.Halt) bool {
			return f.Why == results.HaltFrozen && f.Host == h.Host && h.From < f.To && f.From < h.To
		})
		if h.Why == results.HaltStarved && !frozen {
			sum += time.Duration(h.To - h.From)
		}
	}
	return sum
}

// busyFor is a quarter of 80 ms, the least time by which a planted bug grants a lock too early.
const busyFor = 20 * time.Millisecond

// requireRedis skips the test if Redis is missing, or fails it if LOCKBENCH_REQUIRE names redis.
func requireRedis(t *testing.T) {
	t.Helper()
	s, err := redisserver.Start(t.Context(), nil)
	if err != nil {
		servers.Missing(t, "redis", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestTableFindsPlantedBugs turns on each bug of the plugin planted, one at a time, and checks that
// one play of some fault shows it. Without a bug, the plugin must break a claim under the fault
// evict, but not under freeze-host. A busy machine can hide a bug: if a host got no processor, or a
// thread waited for a processor for busyFor, the test plays the fault again, up to four times.
func TestTableFindsPlantedBugs(t *testing.T) {
	requireRedis(t)
	path := plugintest.Build(t, module+"bench/internal/faults/planted")
	waits, stop := proc.WatchFamily()
	t.Cleanup(stop)
	for _, tt := range []struct {
		bug, fault string
		class      check.Class
		rule       claim.Rule
	}{
		{"none", "freeze-host", check.ClassHeld, ""},
		{"none", "evict", check.ClassBroken, claim.Linear},
		{"pause", "freeze-host", check.ClassBroken, claim.Linear},
		{"token", "restart-wiped", check.ClassBroken, claim.Token},
		{"resurrect", "clock-forward", check.ClassBroken, claim.Linear},
		{"release", "freeze-host", check.ClassBroken, claim.Overlap},
		{"early", "partition-holder", check.ClassBroken, claim.Linear},
	} {
		t.Run(tt.bug+" under "+tt.fault, func(t *testing.T) {
			t.Parallel()
			if _, err := inject.ClockLibrary(t.Context(), t.TempDir()); err != nil && tt.fault == "clock-forward" {
				servers.Missing(t, "cc", &servers.NotInstalledError{Program: "cc", Debian: "gcc", Homebrew: "gcc"})
			}
			b := Backend{Name: "redis", Path: path, Fencing: "durable", Config: driver.Config{"bug": tt.bug}}
			const tries = 5
			for try := 1; ; try++ {
				began := time.Now()
				cells, starved := verdictsOn(t, b, tt.fault)
				c := cells[0]
				if waited := waits.Longest(began); waited >= busyFor {
					starved += waited
				}
				found := tt.rule == "" || slices.ContainsFunc(c.Violations, func(v string) bool { return strings.HasPrefix(v, string(tt.rule)) })
				switch {
				case c.Class == tt.class && found || t.Failed():
					return
				case tt.rule == "" || starved == 0 || try == tries:
					t.Fatalf("verdict %q with %q, want %q and a violation of %q; a busy machine held them up for %v: %+v", c.Class, c.Violations, tt.class, tt.rule, starved, c)
				default:
					t.Logf("again, a busy machine held them up for %v: verdict %q with %q, want %q and a violation of %q", starved, c.Class, c.Violations, tt.class, tt.rule)
				}
			}
		})
	}
}

// TestNoOperationsIsNoVerdict checks that a plugin that cannot be opened is not judged to be safe.
func TestNoOperationsIsNoVerdict(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "lockplugin-memory")
	if err := os.WriteFile(missing, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	faults := slices.DeleteFunc(All(), func(f Fault) bool { return f.Name != "kill-plugin" })
	rounds := played(t, Plan{Backends: []Backend{{Name: "memory", Path: missing}}, Faults: faults, Rounds: 1})
	if c := check.Cells(rounds)[0]; c.Class != check.ClassInvalid || c.Why == "" {
		t.Errorf("%+v, want an invalid cell that says why", c)
	}
}

// TestRoundsAreSchedules checks that each fault has a sound schedule on each store that can run it.
func TestRoundsAreSchedules(t *testing.T) {
	for _, f := range All() {
		for _, k := range kinds.All() {
			if f.Fits(k) != "" {
				continue
			}
			if events := known(k, f.setting(k), f.Events); len(events) != 1 {
				t.Fatalf("%s on %s: %v", f.Name, k.Name, events)
			}
			if events := known(k, f.setting(k), f.Prepare); len(events) != len(f.Prepare) {
				t.Errorf("%s on %s is prepared by %v", f.Name, k.Name, events)
			}
			c := &cell{backend: Backend{Name: k.Name}, fault: f, ttl: TTL}
			s, hit := c.schedule(0)
			if !f.DoesAction(s.Events[hit-1].Action) {
				t.Errorf("%s: event %d is %q", f.Name, hit, s.Events[hit-1].Action)
			}
			for i, e := range s.Events {
				if e.After > i {
					t.Errorf("%s: event %d is to follow event %d", f.Name, i+1, e.After)
				}
				if late := i >= hit; e.Action == Ask && e.Target == rivalHost && len(s.Hosts) > 1 && late != f.RivalAsksLate {
					t.Errorf("%s: the rival asks late: %v", f.Name, late)
				}
			}
		}
	}
}

func TestFaultsAreWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range All() {
		if f.Name == "" || f.Does == "" || seen[f.Name] {
			t.Errorf("%q, %q: incomplete or twice", f.Name, f.Does)
		}
		seen[f.Name] = true
		if f.KeepsLeases && f.Acts == 0 && f.ActsTTLs == 0 {
			t.Errorf("%s keeps its leases, and goes on until they are lost", f.Name)
		}
		if f.Restores != "" && (!f.KeepsLeases || f.TTL < longTTL) {
			t.Errorf("%s is to serve again, and its leases may be lost", f.Name)
		}
	}
}

func TestFaultsFindTheirStores(t *testing.T) {
	for _, f := range All() {
		if !slices.ContainsFunc(kinds.All(), func(k *servers.Kind) bool { return f.Fits(k) == "" }) {
			t.Errorf("%s fits no store", f.Name)
		}
		if f.Name == "evict" && f.Fits(kinds.Of("etcd")) != "it is made for [redis redlock]" {
			t.Errorf("%s on etcd: %q", f.Name, f.Fits(kinds.Of("etcd")))
		}
	}
}
