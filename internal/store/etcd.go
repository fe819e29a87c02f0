package store

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/fault"
)

// The settings of a cluster of etcd.
const (
	One   = "one"
	Three = "three"
	// Balanced is Three behind one address, that leads to each in turn.
	Balanced = "balanced"
	// FewOperations is One that takes 64 operations in a transaction, not 128.
	FewOperations = "few-operations"
)

// etcdMembers is the smallest cluster with a minority.
const etcdMembers = 3

// etcdKind is a cluster of etcd.
var etcdKind = &Store{
	Name: "etcd",
	Lacks: map[fault.Capability]string{
		fault.CapClock:    "etcd asks the kernel for the time, where no library can move it",
		fault.CapReplica:  "its members agree on every write: there is no asynchronous replica",
		fault.CapVotes:    "its members agree on every write",
		fault.CapSentinel: "its members elect a leader by themselves",
		fault.CapSlots:    "every member has all keys",
		fault.CapEvict:    "etcd deletes no keys by itself",
		fault.CapExhaust:  "one connection carries all requests of a host, and etcd has no limit of them"},
	Settings: []Setting{
		{Name: One, Servers: 1}, {Name: Three, Servers: etcdMembers, Elects: true},
		{Name: Balanced, Servers: etcdMembers, Elects: true}, {Name: FewOperations, Servers: 1},
	},
	ExpiryStep: 500 * time.Millisecond, // server/lease/lessor.go looks so often

	open:       startEtcd,
	operations: etcdOperations,
	start:      func(ctx context.Context, _ bool) (env.Nodes, error) { return env.StartEtcdCluster(ctx, 1, nil) },
	services:   []string{"etcd1", "etcd2", "etcd3"},
	scheme:     "http",
	counter:    countEtcd,
	sweep:      sweepEtcd,
	program:    env.EtcdProgram,
}

func startEtcd(ctx context.Context, e *Environment, w Requirements) error {
	s := &etcdStore{Environment: e}
	size := 1
	// Members are removed and added without waiting for 5 s of peace.
	args := []string{"--strict-reconfig-check=false"}
	if w.Setting == FewOperations {
		args = append(args, "--max-txn-ops=64")
	}
	e.balanced = w.Setting == Balanced
	if w.Setting == Three || e.balanced || w.Setting == "" && w.Many {
		size = etcdMembers
		s.peers = &env.EtcdPeers{}
		e.end = append(e.end, s.peers.Close)
	}
	members, err := env.StartEtcdCluster(ctx, size, &env.EtcdOptions{
		Peers: s.peers, Args: args})
	if err != nil {
		return err
	}
	e.add(members...)
	e.product = s
	e.end = append(e.end, s.endStray)
	e.Setup.ReadOnly, e.Setup.Leader = s.alarm, s.leader
	return nil
}
