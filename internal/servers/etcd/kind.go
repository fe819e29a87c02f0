// Package etcd starts etcd clusters, and changes or breaks them as operators do.
package etcd

import (
	"context"
	"regexp"
	"time"

	"github.com/lockbench/lockbench/internal/servers"
)

const (
	One   = "one"
	Three = "three"
	// Balanced is three members behind one address. New connections go to the members in turn.
	Balanced = "balanced"
	// FewOperations is one member that allows 64 operations in a transaction. The default is 128.
	FewOperations = "few-operations"
)

// members is the size of a Three or Balanced cluster. A smaller cluster has no minority.
const members = 3

var Kind = &servers.Kind{
	Name: "etcd",
	Lacks: map[servers.Capability]string{
		servers.CapClock:    "etcd asks the kernel for the time, where no library can move it",
		servers.CapReplica:  "its members agree on every write: there is no asynchronous replica",
		servers.CapVotes:    "its members agree on every write",
		servers.CapSentinel: "its members elect a leader by themselves",
		servers.CapSlots:    "every member has all keys",
		servers.CapEvict:    "etcd deletes no keys by itself",
		servers.CapExhaust:  "one connection carries all requests of a host, and etcd has no limit of them"},
	Settings: []servers.Setting{
		{Name: One, Servers: 1}, {Name: Three, Servers: members, Elects: true},
		{Name: Balanced, Servers: members, Elects: true, Balanced: true}, {Name: FewOperations, Servers: 1},
	},
	SyncsUntold: true,
	ExpiryStep:  500 * time.Millisecond, // interval of expiry checks (server/lease/lessor.go)

	Prepare:    prepare,
	Operations: operations,
	Launch:     func(ctx context.Context, _ bool) (servers.Nodes, error) { return StartCluster(ctx, 1, nil) },
	Services:   []string{"etcd1", "etcd2", "etcd3"},
	HostIn:     regexp.MustCompile(`^http://([^/?]+)`),
	Counter:    count,
	Remove:     remove,
	Program:    Program,
}

func prepare(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	s := &store{Environment: e}
	size := 1
	// With the default value, true, etcd changes its members only after 5 s without a disturbance.
	args := []string{"--strict-reconfig-check=false"}
	if w.Setting == FewOperations {
		args = append(args, "--max-txn-ops=64")
	}
	if w.Setting == Three || w.Setting == Balanced {
		size = members
		s.peers = &Peers{}
		e.AtEnd(s.peers.Close)
	}
	e.Product = s
	e.AtEnd(s.endStray)
	var err error
	e.Servers, err = StartCluster(ctx, size, &Options{Peers: s.peers, Args: args})
	return err
}
