package faults

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
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
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// TestPlantedBugsAreFound checks that a search finds each bug of the plugin in directory planted,
// and makes a reproducer with at most two different actions. Without LOCKBENCH_LONG it looks for
// only one bug, and plays only two actions that can show this bug.
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
		o.Players, o.Length, o.Shrink, o.Runs, o.Actions = 3, 2*time.Minute, 20*time.Second, 1, []string{"freeze-host", "kill-plugin"}
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

// TestLatePushes delays the messages by which Redis tells waiters of their grants. The plugin that
// countsFromThePush builds must then let two hosts hold a lock at once. The real one must not.
func TestLatePushes(t *testing.T) {
	t.Parallel()
	requireRedis(t)
	s := Schedule{
		Backend: "redis", Seed: 1, Hosts: []HostPlan{{Callers: []int{2}}, {Callers: []int{2}}}, Length: Duration(8 * time.Second),
		Groups: []Group{{
			Kind: results.OpLock, Names: 1, TTL: Duration(3 * time.Second), Limit: bounds(10*time.Second, 10*time.Second),
			Hold: bounds(100*time.Millisecond, 300*time.Millisecond), Pause: bounds(time.Millisecond, 20*time.Millisecond),
		}},
		Events: []Event{{Action: "late-pushes", At: Duration(500 * time.Millisecond), Lasts: Duration(7 * time.Second), Amount: 0.4}},
	}
	play := func(path string) (twice bool, all []check.Violation) {
		r, err := NewReplayer(Backend{Name: "redis", Path: path, Fencing: "durable", FirstSpan: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		played, err := r.Play(t.Context(), Reproducer{Schedule: s}, 1)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(played.Violations, func(v check.Violation) bool { return v.Rule == claim.Overlap }), played.Violations
	}
	if _, all := play(plugintest.Build(t, module+"plugins/redis/lockplugin-redis")); len(all) > 0 {
		t.Errorf("without the bug: %+v", all)
	}
	bad, found := countsFromThePush(t), false
	for i := 0; i < 5 && !found; i++ { // how late a message is depends on chance, and on the load
		found, _ = play(bad)
	}
	if !found {
		t.Error("the bug is not found")
	}
}

// countsFromThePush builds the plugin of Redis with a bug. For a grant to a waiter, this plugin
// counts the TTL from the message about the grant, not from the waiter's last keep-alive message.
func countsFromThePush(t *testing.T) (path string) {
	t.Helper()
	file, err := filepath.Abs("../../../plugins/internal/redisnode/waiting.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const right = "age := sinceBoot() - p.sign"
	if !strings.Contains(string(text), right) {
		t.Fatalf("%s has no %q", file, right)
	}
	dir := t.TempDir()
	planted, overlay := filepath.Join(dir, "waiting.go"), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{file: planted}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(overlay, replaced, 0o600), os.WriteFile(planted, []byte(strings.Replace(string(text), right, "age := 0*p.sign", 1)), 0o600)); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "lockplugin-redis")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", path, module+"plugins/redis/lockplugin-redis")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the command "make build" sets this, too
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}
