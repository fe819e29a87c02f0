package redis

import (
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
