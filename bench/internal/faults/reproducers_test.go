package faults

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
)

// TestReproducers plays the reproducers of fixed bugs, and checks that no promise of docs/safety.md
// is broken. With LOCKBENCH_LONG it also plays long reproducers, and each reproducer three times.
func TestReproducers(t *testing.T) {
	t.Parallel()
	all, err := Kept()
	if err != nil || len(all) == 0 {
		t.Fatalf("no reproducers: %v", err)
	}
	long := os.Getenv("LOCKBENCH_LONG") != ""
	of := map[string][]Reproducer{}
	for _, s := range all {
		if s.Finding == "" || s.Fixed == "" || s.Rule == "" || s.What == "" {
			t.Errorf("%s does not say what it shows: %+v", s.Name, s)
		}
		if long || !s.Long {
			of[s.Schedule.Backend] = append(of[s.Schedule.Backend], s)
		}
	}
	for backend, reproducers := range of {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			path := plugintest.Build(t, module+"plugins/"+backend+"/lockplugin-"+backend)
			says, err := plugin.Describe(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			r, err := NewReplayer(Described(path, says))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}()
			runs := 1
			if long {
				runs = 3
			}
			slices.SortStableFunc(reproducers, func(a, b Reproducer) int { return cmp.Compare(a.Schedule.Setting, b.Schedule.Setting) }) // one setting after the other
			for _, s := range reproducers {
				played, err := r.Play(t.Context(), s, runs)
				if errors.Is(err, servers.ErrNotInstalled) {
					servers.Missing(t, backend, err)
				}
				if err != nil || played.Grants == 0 {
					t.Errorf("%s: %d grants, %v", s.Finding, played.Grants, err)
				}
				for _, one := range played.Violations {
					t.Errorf("%s: %s: %s", s.Finding, one.Rule, one.What)
				}
			}
		})
	}
}
