package store

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/fault"
)

// TestStoresAreWellFormed: each has a name and settings of its own, and those
// with servers have what starts, finds and counts them.
func TestStoresAreWellFormed(t *testing.T) {
	compose, err := os.ReadFile("../../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range All() {
		if s.Name == "" || s.open == nil || Of(s.Name) != s || len(s.Settings) == 0 {
			t.Errorf("%d, %q: incomplete or twice", i, s.Name)
		}
		for _, setting := range s.Settings {
			if setting.Servers < 1 || s.Setting(setting.Name) != setting {
				t.Errorf("%s: %+v has no servers, or is there twice", s.Name, setting)
			}
		}
		if s.InHost() {
			continue
		}
		if len(s.services) == 0 || s.counter == nil || s.program == nil || len(s.operations) == 0 {
			t.Errorf("%s is incomplete", s.Name)
		}
		for _, service := range s.services {
			if !strings.Contains(string(compose), "\n  "+service+":\n") {
				t.Errorf("compose.yaml has no service %s", service)
			}
		}
	}
	if unknown := Of("another"); unknown.InHost() || unknown.Has(fault.CapRival) || Known(unknown.Name) {
		t.Error("something is known of a store that is not")
	}
}

// TestFaultsFindTheirStores: each fault can be shown on some store, and on those
// that it is not made for it says which it is made for.
func TestFaultsFindTheirStores(t *testing.T) {
	for _, f := range fault.All() {
		if !slices.ContainsFunc(All(), func(s *Store) bool { return s.Fits(f) == "" }) {
			t.Errorf("%s fits no store", f.Name)
		}
		if f.Name == "evict" && Of("etcd").Fits(f) != "it is made for [redis redlock]" {
			t.Errorf("%s on etcd: %q", f.Name, Of("etcd").Fits(f))
		}
	}
}
