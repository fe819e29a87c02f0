package faults

import (
	"slices"
	"testing"

	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

func TestFits(t *testing.T) {
	k := &servers.Kind{Lacks: map[servers.Capability]string{servers.CapClock: "no clock"}}
	for _, tt := range []struct {
		fault Fault
		want  string
	}{
		{Fault{Name: "a"}, ""},
		{Fault{Name: "a", Needs: []servers.Capability{servers.CapRival, servers.CapPaths}}, ""},
		{Fault{Name: "a", Needs: []servers.Capability{servers.CapRival, servers.CapClock}}, "no clock"},
	} {
		if got := tt.fault.Fits(k); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.fault, got, tt.want)
		}
	}
}

// TestFaultsAreWellFormed: each has a name of its own, says what it does and makes what
// claims may name; one that keeps leases ends by itself, and one after which the store
// serves again keeps them.
func TestFaultsAreWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range All() {
		if f.Name == "" || f.Does == "" || seen[f.Name] {
			t.Errorf("%q, %q: incomplete or twice", f.Name, f.Does)
		}
		seen[f.Name] = true
		for _, c := range f.Produces {
			if c.Says() == "" {
				t.Errorf("%s makes %q, which no claim knows", f.Name, c)
			}
		}
		if f.KeepsLeases && f.Acts == 0 && f.ActsTTLs == 0 {
			t.Errorf("%s keeps its leases, and goes on until they are lost", f.Name)
		}
		if f.Restores != "" && (!f.KeepsLeases || f.TTL < longTTL) {
			t.Errorf("%s is to serve again, and its leases may be lost", f.Name)
		}
	}
}

// TestFaultsFindTheirStores: each fault can be shown on some store, and on those
// that it is not made for it says which it is made for.
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
