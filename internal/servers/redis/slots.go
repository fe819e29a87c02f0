package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/servers"
)

// clusterNodes is the smallest number between which slots can be moved.
const clusterNodes = 2

func startCluster(ctx context.Context, e *servers.Environment, _ servers.Requirements) error {
	nodes, err := StartCluster(ctx, clusterNodes, hostLines...)
	if err != nil {
		return err
	}
	e.Add(nodes...)
	e.Config["cluster"] = "true"
	e.Setup.MoveSlots = e.Switched(moveSlots)
	return nil
}

type clusterNode struct {
	*goredis.Client
	id string
}

// moveSlots moves slots as redis-cli does, with the keys in a random order.
var moveSlots = servers.Change{Do: servers.On(beginMoves), Undo: servers.On(endMoves)}

type slotMove struct {
	slot     int64
	from, to clusterNode
}

// beginMoves begins to move each slot in which there are keys, and moves half of
// its keys.
func beginMoves(ctx context.Context, s *store, _ int) error {
	s.moving = nil
	var nodes []clusterNode
	for _, c := range s.admins {
		id, err := c.Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		nodes = append(nodes, clusterNode{c, id})
	}
	for i, from := range nodes {
		used, err := from.used(ctx)
		if err != nil {
			return err
		}
		for slot := range used {
			s.moving = append(s.moving, slotMove{slot, from, nodes[(i+1)%len(nodes)]})
		}
	}
	for _, m := range s.moving {
		if err := m.begin(ctx); err != nil {
			return fmt.Errorf("slot %d begins to move: %w", m.slot, err)
		}
	}
	return nil
}

// endMoves moves the rest.
func endMoves(ctx context.Context, s *store, _ int) error {
	for _, m := range s.moving {
		// Servers that are slow to answer each other say meanwhile that the cluster is
		// down, and move nothing.
		err := servers.Poll(ctx, fmt.Sprintf("slot %d has moved", m.slot), func() error {
			err := m.rest(ctx)
			// The new server first, so that there is always one that serves it.
			for _, n := range []clusterNode{m.to, m.from} {
				err = errors.Join(err, n.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "NODE", m.to.id).Err())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// used are the slots in which a node has keys.
func (n clusterNode) used(ctx context.Context) (map[int64]bool, error) {
	used := map[int64]bool{}
	keys := n.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		slot, err := n.ClusterKeySlot(ctx, keys.Val()).Result()
		if err != nil {
			return nil, err
		}
		used[slot] = true
	}
	return used, keys.Err()
}

func (m slotMove) begin(ctx context.Context) error {
	if err := m.to.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.from.id).Err(); err != nil {
		return err
	}
	if err := m.from.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.to.id).Err(); err != nil {
		return err
	}
	keys, err := m.keys(ctx)
	if err != nil {
		return err
	}
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return m.migrate(ctx, keys[:len(keys)/2])
}

func (m slotMove) rest(ctx context.Context) error {
	for {
		keys, err := m.keys(ctx)
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := m.migrate(ctx, keys); err != nil {
			return err
		}
	}
}

func (m slotMove) keys(ctx context.Context) ([]string, error) {
	return m.from.ClusterGetKeysInSlot(ctx, int(m.slot), 1000).Result()
}

// migrate moves keys. Of one that is on both servers, because the answer to a
// move was late, that which can still be changed counts.
func (m slotMove) migrate(ctx context.Context, keys []string) error {
	host, port, err := net.SplitHostPort(m.to.Options().Addr)
	for _, key := range keys {
		err = errors.Join(err, m.from.Do(ctx, "MIGRATE", host, port, key, 0, servers.Timeout.Milliseconds(), "REPLACE").Err())
	}
	return err
}

// sentinelReplicas is one more than the faults want grants to wait for.
const sentinelReplicas = 2

// startSentinel starts servers of which Sentinel says to each client which one
// is the master.
func startSentinel(ctx context.Context, e *servers.Environment) error {
	g, err := StartSentinel(ctx, sentinelReplicas)
	if err != nil {
		return err
	}
	e.AtEnd(g.Close)
	e.Config["address"], e.Config["sentinel_master"] = g.Sentinel.Addr(), SentinelMaster
	e.Ready, e.Admit = g.AwaitReplicas, g.AwaitReplicas
	e.Setup.FailOver = g.FailOver
	return nil
}
