package etcd

import (
	"fmt"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/conform"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

var prefixes atomic.Int64

func freshPrefix() string { return fmt.Sprintf("test-%d/", prefixes.Add(1)) }

// leftovers returns the keys of entries below prefix. It leaves out tombstones, which expire by
// themselves, and the token base's key, which is never deleted.
func leftovers(t drivertest.T, c *clientv3.Client, prefix string) []string {
	names := newSpace(prefix).names
	resp, err := c.Get(t.Context(), names, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must(t, err)
	var keys []string
	for _, kv := range resp.Kvs {
		keys = append(keys, fmt.Sprintf("%q", kv.Key))
	}
	return keys
}

func withPassword(t *testing.T, binary string) *servers.Server {
	s := start(t, &etcdserver.Options{Binary: binary})
	withUsers(t, s, "mine/")
	return s
}

func TestConformanceInProcess(t *testing.T) {
	backendtest.Long(t)
	t.Cleanup(func() { goleak.VerifyNone(t) })
	versions(t, func(t *testing.T, binary string) {
		server, users := start(t, &etcdserver.Options{Binary: binary}), withPassword(t, binary)
		client := plain(t, server)
		drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
			prefix := freshPrefix()
			open := func(s *servers.Server, prefix string) func(drivertest.T) driver.Backend {
				return func(t drivertest.T) driver.Backend {
					b, err := Open(&Options{Address: []string{s.Addr()}, Prefix: prefix})
					must(t, err)
					return backendtest.CloseAfter(t, b)
				}
			}
			return &drivertest.Harness{
				Open: open(server, prefix), Other: open(server, freshPrefix()), Denied: open(users, prefix),
				Store: conform.Store(nil, server), InProcess: true,
				Leftovers: func(t drivertest.T) []string { return leftovers(t, client, prefix) },
			}
		})
	})
}

func TestConformance(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	versions(t, func(t *testing.T, binary string) {
		server, users := start(t, &etcdserver.Options{Binary: binary}), withPassword(t, binary)
		client := plain(t, server)
		binary = plugintest.Build(t, "./lockplugin-etcd")
		drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
			mine := freshPrefix()
			on := func(s *servers.Server) *drivertest.Harness {
				return plugintest.Binary(binary, func(drivertest.T) driver.Config {
					return driver.Config{"address": s.Addr(), "prefix": mine}
				})(t)
			}
			h := on(server)
			h.Denied = on(users).Open
			h.Store = conform.Store(nil, server)
			h.Leftovers = func(t drivertest.T) []string { return leftovers(t, client, mine) }
			return h
		})
	})
}
