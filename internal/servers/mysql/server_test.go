package mysql

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/lockbench/lockbench/internal/servers"
)

// startMariaDB skips when there is no server, unless LOCKBENCH_REQUIRE names it.
func startMariaDB(t *testing.T, o *Options) *servers.Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	servers.Keep(t, "mysql", s, err)
	return s
}

func TestMariaDBInParallel(t *testing.T) {
	first := startMariaDB(t, nil) // skips without a server
	var all sync.WaitGroup
	var servers [2]*servers.Server
	var errs [2]error
	for i := range servers {
		all.Go(func() { servers[i], errs[i] = Start(t.Context(), nil) })
	}
	all.Wait()
	for i, s := range servers {
		if errs[i] != nil {
			t.Error(errs[i])
			continue
		}
		if s.Addr() == first.Addr() || s.Addr() == addr(servers[1-i]) {
			t.Errorf("two listen on %s", s.Addr())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func addr(s *servers.Server) string {
	if s == nil {
		return ""
	}
	return s.Addr()
}

func TestMariaDBRestarts(t *testing.T) {
	s := startMariaDB(t, nil)
	for _, keep := range []bool{true, false} {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context(), keep); err != nil {
			t.Fatal(err)
		}
		if err := greetMariaDB(t.Context(), s.Addr()); err != nil {
			t.Errorf("after a start with data %t: %v", keep, err)
		}
	}
}

func TestMariaDBSaysWhyItEnds(t *testing.T) {
	_, err := Start(t.Context(), &Options{Args: []string{"--no-such-option"}})
	if errors.Is(err, servers.ErrNotInstalled) {
		servers.Missing(t, "mysql", err)
	}
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Error(err)
	}
}
