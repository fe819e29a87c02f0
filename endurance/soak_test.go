package endurance_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/safety"
)

const (
	// shortSoak is how long faults are injected unless LOCKBENCH_SOAK says so.
	shortSoak = 5 * time.Second
	// shortPool and fullPool are the leases that are kept on each backend.
	shortPool = 200
	fullPool  = 2_000
)

// TestSoak lets hosts of every backend live under mixed faults, for as long as
// LOCKBENCH_SOAK says ("30m"): no rule may be broken, no lease lost without a
// reason, and no process may grow. LOCKBENCH_SEED decides about the faults.
// The short test has the two backends that start at once, and does not judge
// growth: the race detector's own memory is most of it.
func TestSoak(t *testing.T) {
	soak := safety.Soak{Length: shortSoak, PoolSize: shortPool, Seed: seed(t), Log: t.Logf}
	backends, long := []string{"memory", "redis"}, false
	if length := os.Getenv("LOCKBENCH_SOAK"); length != "" {
		var err error
		if soak.Length, err = time.ParseDuration(length); err != nil || soak.Length <= 0 {
			t.Fatalf("LOCKBENCH_SOAK=%s is not a time such as 30m", length)
		}
		soak.PoolSize, long = fullPool, true
		backends = append(backends, "redlock", "mysql", "etcd")
	}
	for _, name := range backends {
		path := plugintest.Build(t, "../plugins/"+name+"/lockplugin-"+name)
		d, err := plugin.Describe(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		soak.Backends = append(soak.Backends, safety.Backend{Name: name, Path: path, Fencing: string(d.Properties.Fencing)})
	}
	t.Logf("seed %d", soak.Seed)
	found, err := soak.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Run(f.Backend, func(t *testing.T) { judgeSoaked(t, f, long) })
	}
}

// seed is 1 in the short test, so that CI does the same each time.
func seed(t *testing.T) uint64 {
	text := os.Getenv("LOCKBENCH_SEED")
	if text == "" {
		return 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("LOCKBENCH_SEED=%s is not a whole number", text)
	}
	return n
}

func judgeSoaked(t *testing.T, f safety.Soaked, long bool) {
	if errors.Is(f.Err, env.ErrNotInstalled) {
		env.Missing(t, f.Backend, f.Err)
	}
	if f.Err != nil {
		t.Error(f.Err)
	}
	t.Logf("%d rounds, %d grants, %d violations; %d leases with a TTL of 2s were lost to faults that they could survive",
		f.Rounds, f.Grants, len(f.Violations), f.ShortLosses)
	for _, v := range f.Violations {
		t.Error(v)
	}
	keepRounds(t, f)
	t.Logf("use at rest, after the first round and after the last one; allowed to grow: %s", safety.Allowance())
	last := map[string]*safety.Usage{}
	for _, l := range f.Usages {
		last[l.Who] = l
	}
	for _, l := range f.Usages {
		if grown := l.Grown(); long && grown != "" {
			t.Error(grown)
		}
		if last[l.Who] == l {
			t.Logf("%s\n  %v\n  %v", l.Who, l.First, l.Last)
		}
	}
	t.Logf("and %d processes that faults have ended", len(f.Usages)-len(last))
}

// keepRounds writes the histories of bad rounds to where "go test -artifacts"
// keeps files.
func keepRounds(t *testing.T, f safety.Soaked) {
	if len(f.Bad) == 0 {
		return
	}
	file, err := os.Create(filepath.Join(t.ArtifactDir(), "rounds.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := json.NewEncoder(file)
	for _, r := range f.Bad {
		err = errors.Join(err, lines.Encode(r))
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Error(err)
	}
}
