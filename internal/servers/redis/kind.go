// Package redis starts Redis servers: alone, with replicas, as a
// Cluster or with Sentinel. It changes or breaks them as operators do.
package redis

import (
	"context"
	"regexp"

	"github.com/lockbench/lockbench/internal/servers"
)

// Cluster is the setting of a Redis Cluster. Its nodes have no proxies in front of them.
const Cluster = "cluster"

// Push is the text that begins every message that a server sends to a subscriber.
const Push = "3\r\n$7\r\nmessage\r\n"

// Kind is one Redis server, with or without a replica, or a Cluster.
var Kind = &servers.Kind{
	Name:     "redis",
	Lacks:    servers.Lacking(nil, "one server has no minority", servers.CapMinority, servers.CapLeader, servers.CapVotes),
	Settings: []servers.Setting{{Name: servers.Plain, Servers: 1}, {Name: servers.WithReplica, Servers: 1}, {Name: Cluster, Servers: clusterNodes, Sharded: true}},
	Synced:   []string{"appendfsync always"},
	Forgets:  true,
	Push:     Push,
	Floor:    &servers.Floor{Name: "redis-ping", Open: ping},
	LeftKeys: LeftKeys,

	Prepare:    prepare,
	Operations: append(Operations(func(*servers.Operation) {}), onGroups...),
	Staged:     append(Evictions, staged...),
	Launch: func(ctx context.Context, durable bool) (servers.Nodes, error) {
		if durable {
			return StartNodes(ctx, 1, &Options{AppendFsync: FsyncAlways})
		}
		return StartNodes(ctx, 1, nil)
	},
	Services: []string{"redis"},
	HostIn:   regexp.MustCompile(`^redis://(?:.*@)?([^/?]+)`),
	Counter:  Count,
	Remove:   remove,
	Foreign:  Foreign,
	Program:  Program,
}

func prepare(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	switch {
	case w.Wants(servers.CapSentinel):
		return startSentinel(ctx, e)
	case w.Setting == Cluster:
		return Prepare(ctx, e, w, startCluster)
	case w.Setting == servers.WithReplica:
		return Prepare(ctx, e, w, StartServer, startReplica)
	}
	return Prepare(ctx, e, w, StartServer)
}

// StartStep is one step of [Prepare]. It starts servers of an environment, or prepares them.
type StartStep func(ctx context.Context, e *servers.Environment, w servers.Requirements) error

// Prepare chooses the hosts' account. It then runs the given steps, which start Redis servers, and
// sets e.Product for these servers.
func Prepare(ctx context.Context, e *servers.Environment, w servers.Requirements, steps ...StartStep) error {
	if err := e.Account(ctx, w); err != nil {
		return err
	}
	for _, step := range steps {
		if err := step(ctx, e, w); err != nil {
			return err
		}
	}
	s, err := newStore(ctx, e)
	if err != nil {
		return err
	}
	e.Product = s
	return nil
}

// hostLines are in the configuration of the servers that the steps of [Prepare] start. They
// make a server send its data to a new replica without a delay, and give hosts an account.
var hostLines = []string{"repl-diskless-sync-delay 0", "user " + servers.HostUser + " on >" + servers.HostPassword + " ~* &* +@all"}

func StartServer(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	wrap, err := e.StartClock(ctx, w)
	if err != nil {
		return err
	}
	o := &Options{Wrap: wrap, Lines: hostLines}
	if w.Wants(servers.CapKeeps) {
		o.AppendFsync = FsyncAlways
	}
	server, err := Start(ctx, o)
	if err == nil {
		e.Servers = append(e.Servers, server)
	}
	return err
}
