package redis

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/servers"
)

func TestRedisKeepsOrLosesData(t *testing.T) {
	for _, fsync := range []Fsync{FsyncNone, FsyncEverySec, FsyncAlways} {
		t.Run(string(fsync), func(t *testing.T) {
			s, err := Start(t.Context(), &Options{AppendFsync: fsync})
			servers.Keep(t, "redis", s, err)
			must(t, at(t, s).Set(t.Context(), "a", 1, 0).Err())
			for _, keep := range []bool{true, false} {
				must(t, s.Stop())
				if pid := s.Pid(); pid != 0 {
					t.Errorf("Pid of a stopped server = %d", pid)
				}
				err := s.Start(t.Context(), keep)
				if keep && fsync == FsyncNone {
					if err == nil {
						t.Fatal("started with data that were not written")
					}
					continue
				}
				must(t, err)
				if n := at(t, s).Exists(t.Context(), "a").Val(); (n == 1) != keep {
					t.Errorf("started with keepData=%t: %d keys", keep, n)
				}
			}
		})
	}
}

func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Start(t.Context(), nil)
	if !errors.Is(err, servers.ErrNotInstalled) {
		t.Fatal(err)
	}
	for _, want := range []string{"apt-get install redis-server", "brew install redis"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestBadConfigurationSaysWhy(t *testing.T) {
	s, err := Start(t.Context(), &Options{Lines: []string{"no-such-directive yes"}})
	if errors.Is(err, servers.ErrNotInstalled) {
		servers.Missing(t, "redis", err)
	}
	if err == nil {
		t.Fatal("started", s.Close())
	}
	if !strings.Contains(err.Error(), "no-such-directive") {
		t.Error(err)
	}
}
