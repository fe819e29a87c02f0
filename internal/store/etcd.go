package store

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
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
	Terms: claim.Terms{
		Turn:        func(time.Duration) time.Duration { return 3 * time.Second },
		ExpiresLate: time.Second + 500*time.Millisecond,
		Reconnects:  time.Second,
		Remarks: map[claim.Rule]claim.Remark{
			claim.Orphaned: {
				Time: "on etcd 2 s",
				From: "etcd starts every TTL anew, and a second longer, when a leader is elected, and looks for what has expired twice a second",
			},
			claim.Survives: {From: "So is the second in which etcd's client leaves a member that does not answer"},
			claim.Woken:    {From: "On etcd it is 3 s"},
			claim.Granted: {
				Time: "on etcd 1 s more",
				From: "A member of etcd is connected to again after 1 s at most",
			},
		},
		Exceptions: []claim.Exception{
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.LeaderPaused},
				Why: "a leader that goes on (a virtual machine that was paused, a disk that hung) may revoke, by its own books, leases that were renewed at its successor. " +
					"The holder is told by its watch, in milliseconds and usually before the next grant, but that is no promise. " +
					"If it stalled for 10 s, the queue entries of waiters go the same way, and their order is lost",
				Source: 14,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.DataLost},
				Why:    "the key is lost with the cluster's data. The new cluster's tokens begin above the clock of the host that comes first",
				Source: 15,
			},
			{
				Rules: claim.Twice(claim.Token), All: []claim.Condition{claim.WritesLost},
				Why:    "a member that runs with `--unsafe-no-fsync` may forget what it has promised, and revisions, of which tokens are made, are given again",
				Source: 16,
			},
			{
				Rules: claim.Twice(claim.Token), All: []claim.Condition{claim.OldData},
				Why:    "an older snapshot brings back old leases and old revisions, unless it is restored with `--bump-revision`",
				Source: 15,
			},
			{
				Rules: claim.Twice(claim.Token), All: []claim.Condition{claim.TwoStores},
				Why: "two clusters grant every lock each. A host whose addresses lead to both grants nothing, warns once, and its check fails, " +
					"but it sees only members that answer when it looks, at its first acquire and at most every 30 s in its check; " +
					"two hosts that are led to one cluster each do not notice",
				Source: 24,
			},
			{
				Rules: []claim.Rule{claim.Token}, All: []claim.Condition{claim.DataLost, claim.ClockBack},
				Why:    "it is the clock of a host that the new cluster's tokens begin above",
				Source: 24,
			},
		},
	},
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
