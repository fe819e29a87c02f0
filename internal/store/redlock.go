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
	Terms: claim.Terms{
		Turn:       func(time.Duration) time.Duration { return 250 * time.Millisecond },
		Reconnects: time.Second,
		Remarks: map[claim.Rule]claim.Remark{
			claim.Leaked: {From: "On redlock it is one for each prefix and node"},
			claim.Woken:  {From: "On redlock it is 250 ms"},
			claim.Granted: {
				Time: "on redlock 1 s more, and max_ttl where nodes were restarted",
				From: "A node of redlock is asked again after 1 s at most",
			},
		},
		Exceptions: []claim.Exception{
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.ClockForward},
				Why: "the key on a node whose clock has jumped expires, and its vote makes a second majority. " +
					"The quarantine does not help: nothing has restarted. A majority of nodes has seen the holder's token, so the next one is higher",
				Source: 4,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.TwoStores},
				Why:    "a node whose address leads hosts to different servers votes twice, once for each. Two addresses of one server are refused",
				Source: 6,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.QuarantineOff}, Any: []claim.Condition{claim.DataLost, claim.WritesLost, claim.OldData},
				Why:    "a node that has lost its data votes again at once, also for a lock that it has forgotten",
				Source: 6,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.Evicting},
				Why:    "a node that has evicted a lock votes for the next one; see redis",
				Source: 17,
			},
			{
				Rules: claim.Late(claim.Survives), All: []claim.Condition{claim.EvictionSeen},
				Why:    "as on redis; with its marker a node has lost its vote until `max_ttl` has passed",
				Source: 17,
			},
			{
				Rules: []claim.Rule{claim.Survives}, All: []claim.Condition{claim.Restarted},
				Why:    "a node that was restarted counts for nothing until `max_ttl` has passed, so that a majority neither grants nor renews",
				Source: 6,
			},
			{
				Rules: claim.Late(claim.Orphaned, claim.Leaked), All: []claim.Condition{claim.ClockBack},
				Why:    "the nodes' keys end at times of their wall clocks: where a majority was set back, a lease that nobody renews or releases lasts for as much longer",
				Source: 11,
			},
			{
				Rules: []claim.Rule{claim.Token}, All: []claim.Condition{claim.Restarted, claim.DataLost, claim.ClockBack},
				Why:    "what a majority has lost begins again at its nodes' clocks, which must agree better than the quarantine lasts",
				Source: 24,
			},
			{
				Rules: []claim.Rule{claim.Token}, All: []claim.Condition{claim.Unfenced},
				Why:    "there are no tokens",
				Source: 24,
			},
		},
	},
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
