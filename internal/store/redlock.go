package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/fault"
)

const (
	// redlockNodes is how many nodes there are: two may fail.
	redlockNodes = 5
	// Quarantine is how long a node does not vote that was restarted or has lost
	// its data, with leases of up to 10 s.
	quarantine = 11 * time.Second
)

// redlockKind is five independent Redis servers, of which a majority decides.
var redlockKind = &Store{
	Name: "redlock",
	Lacks: lacking(map[fault.Capability]string{
		fault.CapLeader: "its nodes do not know each other",
		fault.CapSlots:  "every node has all keys",
	}, "its nodes are independent masters: a replica of one is what the algorithm excludes", fault.CapReplica, fault.CapSentinel),
	Settings: []Setting{{Name: Plain, Servers: redlockNodes}},
	LeftKeys: leftKeys,

	open:       startRedlock,
	operations: append(operationsOn(oneOfSeveral), rotation),
	start: func(ctx context.Context, durable bool) (env.Nodes, error) {
		if durable {
			// Five servers that flush every write to one disk would miss node_timeout.
			return env.StartRedisNodes(ctx, redlockNodes, &env.RedisOptions{AppendFsync: env.FsyncEverySec})
		}
		return env.StartRedisNodes(ctx, redlockNodes, nil)
	},
	// Nor does the suite, which shares the machine with them, leave them 50 ms.
	durable: driver.Config{"node_timeout": "200ms"},
	// Fresh nodes would not vote before max_ttl has passed.
	admit:    env.Init,
	services: []string{"redlock1", "redlock2", "redlock3", "redlock4", "redlock5"},
	counter:  countRedis,
	sweep:    sweepRedisNodes,
	foreign:  foreignKey,
	program:  env.RedisProgram,
}

func startRedlock(ctx context.Context, e *Environment, w Requirements) error {
	// A node that has lost its data is let in again after max_ttl; the nodes
	// share a machine with each other and with what harms them.
	e.Config["max_ttl"], e.Config["node_timeout"] = w.TTL.String(), "100ms"
	e.admit = func(ctx context.Context) error {
		return e.servers.Init(ctx, w.Plugin, "max_ttl="+w.TTL.String(), "node_timeout=100ms")
	}
	return e.asRedis(ctx, w, slices.Repeat([]startStep{e.startRedisServer}, redlockNodes)...)
}

// oneOfSeveral is what becomes of an operation on one node: it stops nobody.
func oneOfSeveral(o *Operation) {
	o.Stops, o.StopsGrants, o.Settings = false, false, nil
	if o.forgets {
		// Another node that cannot vote meanwhile leaves a majority, two may not.
		o.Recovers = quarantine
	}
	// What one node has lost is no loss, as it does not vote then.
	o.Makes = slices.DeleteFunc(slices.Clone(o.Makes), func(c claim.Condition) bool { return c == claim.DataLost })
}

// admitted returns nil when a node votes.
func (s *redisStore) admitted(ctx context.Context, n int) error {
	info, err := s.admins[n].InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	marker, err := s.admins[n].HGet(ctx, "~redlock", "marker").Result()
	if err != nil || !strings.HasPrefix(marker, info["Server"]["run_id"]+" ") {
		return fmt.Errorf("it does not vote: its marker is %q: %w", marker, err)
	}
	return nil
}
