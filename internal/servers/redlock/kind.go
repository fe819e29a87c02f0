// Package redlock describes the servers of the redlock backend: several independent Redis servers.
package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/redis"
)

const (
	// nodes is the number of servers. Two of five may fail.
	nodes = 5
	// quarantine is the time for which a node does not vote after a restart or a loss of its data. It
	// is a little more than 10 s, the longest TTL of leases in fault tests.
	quarantine = 11 * time.Second
)

// Kind is five independent Redis servers. A majority of them grants a lock.
var Kind = &servers.Kind{
	Name: "redlock",
	Lacks: servers.Lacking(map[servers.Capability]string{
		servers.CapLeader: "its nodes do not know each other",
		servers.CapSlots:  "every node has all keys",
	}, "its nodes are independent masters: a replica of one is what the algorithm excludes", servers.CapReplica, servers.CapSentinel),
	Settings: []servers.Setting{{Name: servers.Plain, Servers: nodes}},
	Synced:   redis.Kind.Synced,
	LeftKeys: redis.LeftKeys,
	Push:     redis.Push,

	Prepare:    prepare,
	Operations: append(redis.Operations(oneOfSeveral), redis.Rotation),
	Staged:     redis.Evictions,
	Launch: func(ctx context.Context, durable bool) (servers.Nodes, error) {
		if durable {
			// Five servers that flush every write to the same disk would not answer within node_timeout.
			return redis.StartNodes(ctx, nodes, &redis.Options{AppendFsync: redis.FsyncEverySec})
		}
		return redis.StartNodes(ctx, nodes, nil)
	},
	// The default of 50 ms is too short if the conformance suite runs on the servers' machine.
	Durable:  driver.Config{"node_timeout": "200ms"},
	Services: []string{"redlock1", "redlock2", "redlock3", "redlock4", "redlock5"},
	Counter:  redis.Count,
	Remove:   redis.RemoveFromEach,
	Foreign:  redis.Foreign,
	Program:  redis.Program,
}

func prepare(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	// A node that has lost its data does not vote until max_ttl is over. node_timeout is longer
	// than the default, because all nodes and this program share one machine.
	e.Config["max_ttl"], e.Config["node_timeout"] = w.TTL.String(), "100ms"
	return redis.Prepare(ctx, e, w, slices.Repeat([]redis.StartStep{redis.StartServer}, nodes)...)
}

// oneOfSeveral notes that an operation on one server stops no host, because a majority still votes.
func oneOfSeveral(o *servers.Operation) {
	o.Stops, o.StopsGrants, o.Settings = false, false, nil
	if o.Forgets {
		// If this node and one other do not vote, a majority still votes. If a third node does not vote
		// either, hosts may have to wait.
		o.Recovers = quarantine
	}
	// If a node loses its data, no lock is lost, because the node then does not vote for a while.
	o.Makes = slices.DeleteFunc(slices.Clone(o.Makes), func(c claim.Condition) bool { return c == claim.DataLost })
}
