package faults

import (
	"errors"
	"os"
	"testing"

	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// TestReproducers plays what was found once, and is fixed: no claim is broken. The
// long ones are played with LOCKBENCH_LONG, three times each.
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
			b := Backend{Name: backend, Path: path, Fencing: fencing[backend]}
			x, err := newExplorer(b, Options{Players: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := x.close(); err != nil {
					t.Error(err)
				}
			}()
			for _, setting := range kinds.Of(backend).SettingNames() { // one environment after the other
				for _, s := range reproducers {
					if s.Schedule.Setting == setting {
						playReproducer(t, x, s, long)
					}
				}
			}
		})
	}
}

// fencing is the class of each backend, as it says itself.
var fencing = map[string]string{"redis": "durable", "redlock": "quorum", "mysql": "durable", "etcd": "durable"}

func playReproducer(t *testing.T, x *explorer, s Reproducer, long bool) {
	runs := 1
	if long {
		runs = 3
	}
	for range runs {
		h, err := x.play(t.Context(), s.Schedule)
		if errors.Is(err, servers.ErrNotInstalled) {
			servers.Missing(t, x.backend.Name, err)
		}
		if err != nil {
			t.Errorf("%s: %v", s.Finding, err)
			return
		}
		v := s.judge(h, x.backend)
		for _, m := range h.Marks {
			if m.Failed != "" {
				t.Errorf("%s: %s: %s", s.Finding, m.Action, m.Failed)
			}
		}
		if v.Grants == 0 {
			t.Errorf("%s: nothing was granted", s.Finding)
		}
		for _, one := range v.Violations {
			t.Errorf("%s: %s: %s", s.Finding, one.Rule, one.What)
		}
		t.Logf("%s: %d grants, %v", s.Finding, v.Grants, v.Exempt)
	}
}
