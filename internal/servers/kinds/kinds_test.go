package kinds

import (
	"os"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/servers"
)

// TestKindsAreWellFormed checks that each kind has a unique name and settings, and that
// a kind with servers has the functions that start, find and count its servers.
func TestKindsAreWellFormed(t *testing.T) {
	compose, err := os.ReadFile("../../../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range All() {
		if k.Name == "" || k.Prepare == nil || Of(k.Name) != k || len(k.Settings) == 0 {
			t.Errorf("%d, %q: incomplete or twice", i, k.Name)
		}
		for _, setting := range k.Settings {
			if setting.Servers < 1 || k.Setting(setting.Name) != setting {
				t.Errorf("%s: %+v has no servers, or is there twice", k.Name, setting)
			}
		}
		if k.InHost() {
			continue
		}
		if len(k.Services) == 0 || k.Counter == nil && k.Name != "postgres" || k.Program == nil || len(k.Operations) == 0 {
			t.Errorf("%s is incomplete", k.Name)
		}
		for _, service := range k.Services {
			if !strings.Contains(string(compose), "\n  "+service+":\n") {
				t.Errorf("compose.yaml has no service %s", service)
			}
		}
	}
	if unknown := Of("another"); unknown.InHost() || unknown.Has(servers.CapServers) || unknown.Known() {
		t.Error("something is known of a store that is not")
	}
}

func TestSurvivesCrash(t *testing.T) {
	for _, c := range []struct {
		kind, durability string
		survives         bool
	}{
		{"redis", "appendfsync always", true},
		{"redis", "appendfsync everysec", false},
		{"mysql", "innodb_flush_log_at_trx_commit=1, sync_binlog=1", true},
		{"mysql", "innodb_flush_log_at_trx_commit=2", false},
		{"postgres", "fsync=on, full_page_writes=on, synchronous_commit=on", true},
		{"postgres", "fsync=on, full_page_writes=on, synchronous_commit=off", false},
		{"postgres", "fsync=off, full_page_writes=on, synchronous_commit=on", false},
	} {
		if got := Of(c.kind).SurvivesCrash(c.durability, false); got != c.survives {
			t.Errorf("%s with %q survives a crash: %v", c.kind, c.durability, got)
		}
	}
}
