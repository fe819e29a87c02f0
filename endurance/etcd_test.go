package endurance_test

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core/driver"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
)

func startEtcd(t testing.TB) driver.Config {
	s, err := etcdserver.Start(t.Context(), nil)
	return driver.Config{"address": keep(t, "etcd", s, err).Addr(), "prefix": "endurance/"}
}

// etcdKeys are the keys that no lease will take away within two minutes, but
// for the one control key of the prefix.
func etcdKeys(t *testing.T, cfg driver.Config) []string {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{cfg["address"]}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resp, err := c.Get(t.Context(), cfg["prefix"], clientv3.WithPrefix()) // a read of keys only leaves the lease out
	if err != nil {
		t.Fatal(err)
	}
	grants := map[int64]int64{} // TTL by lease
	var left []string
	for _, kv := range resp.Kvs {
		if _, known := grants[kv.Lease]; !known && kv.Lease != 0 {
			ttl, err := c.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease))
			if err != nil {
				t.Fatal(err)
			}
			grants[kv.Lease] = ttl.TTL
		}
		control := string(kv.Key) == cfg["prefix"]+"\xffe"
		if !control && (kv.Lease == 0 || grants[kv.Lease] > 120) {
			left = append(left, fmt.Sprintf("%q for %d s", kv.Key, grants[kv.Lease]))
		}
	}
	return left
}
