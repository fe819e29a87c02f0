// Package redlock has the servers of the redlock backend: independent Redis
// servers.
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
	// nodes is the number of servers, of which two may fail.
	nodes = 5
	// quarantine is how long a node does not vote after a restart or a loss of
	// its data, if leases last for up to 10 s.
	quarantine = 11 * time.Second
)

// Kind is five independent Redis servers, of which a majority decides.
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
			// Five servers that flush every write to one disk would miss node_timeout.
			return redis.StartNodes(ctx, nodes, &redis.Options{AppendFsync: redis.FsyncEverySec})
		}
		return redis.StartNodes(ctx, nodes, nil)
	},
	// The conformance suite shares the machine with the servers, so 50 ms would be too short.
	Durable:  driver.Config{"node_timeout": "200ms"},
	Services: []string{"redlock1", "redlock2", "redlock3", "redlock4", "redlock5"},
	Counter:  redis.Count,
	Remove:   redis.RemoveFromEach,
	Foreign:  redis.Foreign,
	Program:  redis.Program,
}

func prepare(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	// A node that has lost its data votes again after max_ttl. node_timeout is long,
	// because the nodes share one machine with each other and with this program.
	e.Config["max_ttl"], e.Config["node_timeout"] = w.TTL.String(), "100ms"
	return redis.Prepare(ctx, e, w, slices.Repeat([]redis.StartStep{redis.StartServer}, nodes)...)
}

// oneOfSeveral adapts an operation on one node, because the loss of one node stops no host.
func oneOfSeveral(o *servers.Operation) {
	o.Stops, o.StopsGrants, o.Settings = false, false, nil
	if o.Forgets {
		// If one more node cannot vote meanwhile, a majority remains. With two more it may not.
		o.Recovers = quarantine
	}
	// Data lost by one node do not matter, because the node then does not vote for a while.
	o.Makes = slices.DeleteFunc(slices.Clone(o.Makes), func(c claim.Condition) bool { return c == claim.DataLost })
}
