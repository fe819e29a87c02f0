package faults

import (
	"context"
	"errors"
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

// TestFaultsAreWellFormed: each has a name of its own and says what it does, one
// that keeps leases ends by itself, and one after which the store
// serves again keeps them.
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
		if f.RestoresService && (!f.KeepsLeases || f.TTL < longTTL) {
			t.Errorf("%s is to serve again, and its leases may be lost", f.Name)
		}
	}
}

// stub is a server that counts what is done to it.
type stub struct{ stopped, started, wiped, frozen, resumed int }

func (s *stub) Addr() string  { return "h:1" }
func (s *stub) Pid() int      { return 1 }
func (s *stub) Stop() error   { s.stopped++; return nil }
func (s *stub) Freeze() error { s.frozen++; return nil }
func (s *stub) Resume() error { s.resumed++; return nil }
func (s *stub) Start(_ context.Context, keep bool) error {
	s.started++
	if !keep {
		s.wiped++
	}
	return nil
}

func TestServersHarmed(t *testing.T) {
	for _, tt := range []struct {
		fault                          string
		servers                        int
		stopped, wiped, frozen, resume int // how many of them
	}{
		{"restart", 1, 1, 0, 0, 0},
		{"restart", 5, 5, 0, 0, 0},
		{"restart-wiped", 1, 1, 1, 0, 0},
		{"restart-wiped", 3, 3, 3, 0, 0},
		{"restart-wiped", 5, 1, 1, 0, 0},
		{"partition-majority", 1, 0, 0, 1, 1},
		{"partition-majority", 3, 0, 0, 2, 2},
		{"partition-minority", 3, 0, 0, 1, 1},
		{"pause-leader", 3, 0, 0, 1, 3},
		{"partition-minority", 5, 0, 0, 2, 2},
	} {
		s := Setup{Votes: tt.servers == 5, Leader: func(context.Context) (int, error) { return 1, nil }}
		var stubs []*stub
		for range tt.servers {
			one := &stub{}
			stubs = append(stubs, one)
			s.Servers = append(s.Servers, one)
		}
		for _, f := range All() {
			if f.Name != tt.fault {
				continue
			}
			err := f.Inject(t.Context(), &s)
			if f.Heal != nil {
				err = errors.Join(err, f.Heal(t.Context(), &s))
			}
			if err != nil {
				t.Error(err)
			}
		}
		var sum stub
		for _, one := range stubs {
			sum.stopped += one.stopped
			sum.wiped += one.wiped
			sum.frozen += one.frozen
			sum.resumed += one.resumed
		}
		if sum.stopped != tt.stopped || sum.wiped != tt.wiped || sum.frozen != tt.frozen || sum.resumed != tt.resume {
			t.Errorf("%s on %d servers: %+v", tt.fault, tt.servers, sum)
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
