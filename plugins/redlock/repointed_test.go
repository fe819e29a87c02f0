package redlock

import (
	"net"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// failover starts a replica of a node and makes the replica the master. Connections to the old
// master stay open. New connections through the proxy address lead to the new master.
func failover(t *testing.T, node *servers.Server, address *inject.Proxy) {
	t.Helper()
	host, port, err := net.SplitHostPort(node.Addr())
	must(t, err)
	replica := start(t, 1, &redisserver.Options{Lines: []string{"replicaof " + host + " " + port}})[0]
	is := func(s *servers.Server, what string) {
		c := plain(t, s)
		eventually(t, what, func() bool { return strings.Contains(c.Info(t.Context(), "replication").Val(), what) })
	}
	is(replica, "master_link_status:up")
	must(t, plain(t, node).Do(t.Context(), "FAILOVER").Err())
	is(node, "role:slave")
	is(replica, "role:master")
	must(t, address.Lead(replica.Addr()))
}

// If nodes fail over and old connections stay open, hosts connect to the new
// masters, which vote after max_ttl.
func TestFailoverOfNodesThatCutsNothing(t *testing.T) {
	nodes := start(t, 3, &redisserver.Options{Lines: []string{"repl-diskless-sync-delay 0"}})
	addresses := make([]*inject.Proxy, len(nodes))
	cfg := configOf(nodes, driver.Config{"max_ttl": "4s", "node_timeout": "200ms"})
	must(t, initialise(t.Context(), cfg))
	var all []string
	for i, s := range nodes {
		addresses[i] = backendtest.NewProxy(t, s.Addr())
		all = append(all, addresses[i].Addr())
	}
	cfg["address"] = strings.Join(all, ",")
	b := connect(t, cfg)
	must(t, b.Check(t.Context()))
	failover(t, nodes[0], addresses[0])
	acquireSoon(t, b, "with two of three")
	failover(t, nodes[1], addresses[1])
	eventually(t, "the check fails", func() bool { return b.Check(t.Context()) != nil })
	acquireSoon(t, b, "with three")
	eventually(t, "the check holds", func() bool { return b.Check(t.Context()) == nil })
}
