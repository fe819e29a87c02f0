package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/servers"
)

const slots = 16384

// StartCluster starts a Redis Cluster of count nodes without replicas, each with an equal part of
// the slots. It returns when all nodes know each other and all slots. The parameter lines has
// additional lines of redis.conf.
func StartCluster(ctx context.Context, count int, lines ...string) (servers.Nodes, error) {
	buses := make([]string, count)
	nodes, err := servers.StartNodes(count, func(i int) (*servers.Server, error) {
		taken, err := ports.Take(2)
		if err != nil {
			return nil, err
		}
		buses[i] = fmt.Sprint(taken.Port(1))
		return Start(ctx, &Options{ports: taken, Lines: append([]string{
			"cluster-enabled yes", "cluster-port " + buses[i], "cluster-node-timeout 2000"}, lines...)})
	})
	if err != nil {
		return nil, err
	}
	err = meet(ctx, nodes, buses)
	for _, s := range nodes {
		err = errors.Join(err, awaitCluster(ctx, s, count))
	}
	if err != nil {
		return nil, errors.Join(err, nodes.Close())
	}
	return nodes, nil
}

// meet gives each node its slots. It tells the first node the addresses of the other nodes. The
// first node then makes them known to each other.
func meet(ctx context.Context, n servers.Nodes, buses []string) error {
	var errs []error
	for i, s := range n {
		host, port, err := net.SplitHostPort(s.Addr())
		errs = append(errs, err,
			Do(ctx, s.Addr(), "CLUSTER", "ADDSLOTSRANGE", i*slots/len(n), (i+1)*slots/len(n)-1),
			Do(ctx, n[0].Addr(), "CLUSTER", "MEET", host, port, buses[i]))
	}
	return errors.Join(errs...)
}

func awaitCluster(ctx context.Context, s *servers.Server, size int) error {
	c := client(s.Addr())
	defer c.Close()
	return servers.Retry(ctx, "the Cluster of "+s.Addr(), func() error {
		info, err := c.ClusterInfo(ctx).Result()
		// Without cluster-require-full-coverage, the state is ok even if slots are missing.
		for _, line := range []string{"cluster_state:ok", fmt.Sprint("cluster_known_nodes:", size), fmt.Sprint("cluster_slots_assigned:", slots)} {
			if err == nil && !strings.Contains(info, line+"\r") {
				err = errors.New("its nodes do not agree yet")
			}
		}
		return err
	})
}

// clusterNodes is the number of nodes in the setting [Cluster]. Moving slots needs two or more.
const clusterNodes = 2

func startCluster(ctx context.Context, e *servers.Environment, _ servers.Requirements) error {
	nodes, err := StartCluster(ctx, clusterNodes, hostLines...)
	if err != nil {
		return err
	}
	e.Servers = nodes
	e.Config["cluster"] = "true"
	return nil
}

type clusterNode struct {
	*goredis.Client
	id string
}

type slotMove struct {
	slot     int64
	from, to clusterNode
}

// beginMoves begins to move each slot that has keys to the next node, as redis-cli does. It moves a
// random half of the slot's keys, and does not finish the move.
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

func endMoves(ctx context.Context, s *store, _ int) error {
	for _, m := range s.moving {
		// If servers have heard nothing from each other for a while, they report
		// for a moment that the cluster is down, and refuse to move keys.
		err := servers.Retry(ctx, fmt.Sprintf("slot %d has moved", m.slot), func() error {
			err := m.rest(ctx)
			// If the old node were told first, no node would serve the slot for a moment.
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

func (n clusterNode) used(ctx context.Context) (map[int64]bool, error) {
	keys, err := scan(ctx, n, "*")
	used := map[int64]bool{}
	for _, key := range keys {
		slot, slotErr := n.ClusterKeySlot(ctx, key).Result()
		used[slot], err = true, errors.Join(err, slotErr)
	}
	return used, err
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

// migrate moves keys to the new node. If the reply to an earlier try came late, both nodes have a
// key. Clients may have changed the key on the old node since then, so REPLACE overwrites the copy.
func (m slotMove) migrate(ctx context.Context, keys []string) error {
	host, port, err := net.SplitHostPort(m.to.Options().Addr)
	for _, key := range keys {
		err = errors.Join(err, m.from.Do(ctx, "MIGRATE", host, port, key, 0, servers.Timeout.Milliseconds(), "REPLACE").Err())
	}
	return err
}
