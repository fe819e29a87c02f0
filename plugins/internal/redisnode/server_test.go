package redisnode

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
)

func TestServer(t *testing.T) {
	const master = "# Server\r\nredis_version:7.2.4\r\nrun_id:abc\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n"
	cases := []struct {
		info, fsync, version, durability string
		how                              Topology
		served                           bool
		unsafe                           string
	}{
		{info: master + "aof_enabled:1\r\n", fsync: "always", version: "Redis 7.2.4", durability: "appendfsync always"},
		{info: master + "aof_enabled:1\r\n", version: "Redis 7.2.4", durability: "appendonly, appendfsync unknown"},
		{info: master + "aof_enabled:0\r\n", fsync: "everysec", version: "Redis 7.2.4", durability: "no appendonly"},
		{info: master + "valkey_version:8.0.1\r\n", version: "Valkey 8.0.1", durability: "unknown"},
		{info: "redis_version:5.0.7\r\n", version: "Redis 5.0.7", durability: "unknown", unsafe: "version 6.0"},
		{info: "redis_version:7.0.0\r\nmaxmemory_policy:allkeys-lru\r\n", version: "Redis 7.0.0", durability: "unknown", unsafe: "maxmemory-policy allkeys-lru"},
		{info: "redis_version:7.0.0\r\nrole:slave\r\nmaster_host:m\r\nmaster_port:1\r\n", version: "Redis 7.0.0", durability: "unknown", unsafe: "read-only replica of m:1"},
		{info: "redis_version:7.0.0\r\ncluster_enabled:1\r\n", version: "Redis 7.0.0", durability: "unknown", unsafe: "set cluster"},
		{info: "redis_version:7.0.0\r\nrole:slave\r\n", how: Cluster, version: "Redis 7.0.0", durability: "unknown"},
		{info: "redis_version:7.0.0\r\nrole:slave\r\nmaster_host:m\r\nmaster_port:1\r\n", served: true, version: "Redis 7.0.0", durability: "unknown", unsafe: "replica of m:1 now"},
		{info: "redis_version:7.0.0\r\nrole:slave\r\n", how: Sentinels, version: "Redis 7.0.0", durability: "unknown", unsafe: "a failover is under way"},
		{info: "redis_version:7.0.0\r\nrole:master\r\nloading:1\r\n", version: "Redis 7.0.0", durability: "unknown", unsafe: "still loading"},
		{info: "redis_version:7.0.0\r\nredis_mode:sentinel\r\n", how: Sentinels, version: "Redis 7.0.0", durability: "unknown"},
		{info: "redis_version:7.0.0\r\nredis_mode:sentinel\r\n", version: "Redis 7.0.0", durability: "unknown", unsafe: "set sentinel_master"},
	}
	for _, c := range cases {
		s := parseServer(c.info, map[string]string{"appendfsync": c.fsync})
		if s.Version != c.version || s.Durability != c.durability {
			t.Errorf("%q is %+v", c.info, s)
		}
		err := errors.Join(s.Unsafe("db1:6379", c.how, c.served), s.Evicts("db1:6379"))
		want := driver.ErrDenied // for a permanent cause
		if c.served || c.how == Sentinels || s.loading {
			want = driver.ErrUnavailable
		}
		switch {
		case c.unsafe == "" && err != nil:
			t.Errorf("%q: %v", c.info, err)
		case c.unsafe != "" && (!errors.Is(err, want) || !strings.Contains(err.Error(), c.unsafe) || !strings.Contains(err.Error(), "db1:6379")):
			t.Errorf("%q: %v, want %q", c.info, err, c.unsafe)
		}
	}
}
