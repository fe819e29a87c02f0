package redis

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/servers"
)

func open(t *testing.T, setting string, needs ...servers.Capability) *servers.Environment {
	t.Helper()
	e, err := Kind.Open(t.Context(), servers.Requirements{Setting: setting, Needs: needs, TTL: 10 * time.Second, Dir: t.TempDir()})
	servers.Keep(t, "redis", e, err)
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put writes 100 keys. It returns a function that counts how many of these keys still exist.
func put(t *testing.T, c goredis.UniversalClient) (count func() int64) {
	t.Helper()
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprintf("{%d}", i))
		must(t, c.Set(t.Context(), keys[i], i, 0).Err())
	}
	return func() (n int64) {
		for _, key := range keys {
			n += c.Exists(t.Context(), key).Val()
		}
		return n
	}
}

func at(t *testing.T, s *servers.Server) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestSlotsMove checks that every key can be read while the slots
// move. Afterwards the two nodes must have exchanged their keys.
func TestSlotsMove(t *testing.T) {
	e := open(t, Cluster)
	first, second := at(t, e.Servers[0]), at(t, e.Servers[1])
	c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{first.Options().Addr, second.Options().Addr}})
	defer c.Close()
	count := put(t, c)
	sizes := [2]int64{first.DBSize(t.Context()).Val(), second.DBSize(t.Context()).Val()}
	must(t, servers.On(beginMoves)(t.Context(), e, 0))
	if n := count(); n != 100 {
		t.Errorf("%d of 100 keys while they are moved", n)
	}
	must(t, servers.On(endMoves)(t.Context(), e, 0))
	if n := count(); n != 100 {
		t.Errorf("%d of 100 keys after the move", n)
	}
	if now := [2]int64{second.DBSize(t.Context()).Val(), first.DBSize(t.Context()).Val()}; now != sizes {
		t.Errorf("the nodes had %v keys, and changed places have %v", sizes, now)
	}
}

// TestMemoryEvicts checks that a full server deletes keys while eviction is allowed, and deletes
// none when eviction is forbidden again.
func TestMemoryEvicts(t *testing.T) {
	e := open(t, servers.Plain)
	c := at(t, e.Servers[0])
	count := put(t, c)
	must(t, evicting(t.Context(), e, 0))
	if n := count(); n != 100 {
		t.Errorf("%d of 100 keys before the memory is full", n)
	}
	must(t, fill(t.Context(), e, 0))
	if n := count(); n > 5 {
		t.Errorf("%d of 100 keys were not deleted", n)
	}
	must(t, keeping(t.Context(), e, 0))
	count = put(t, c)
	must(t, fill(t.Context(), e, 0))
	if n := count(); n != 100 {
		t.Errorf("%d of 100 keys after the end", n)
	}
}
