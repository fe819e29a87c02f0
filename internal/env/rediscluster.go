package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/ports"
)

// slots is how many a Redis Cluster has.
const slots = 16384

// StartRedisCluster starts a Redis Cluster of count nodes, each with an equal
// part of the slots and no replica, and returns when all of them agree. The lines
// are further ones of redis.conf.
func StartRedisCluster(ctx context.Context, count int, lines ...string) (Nodes, error) {
	var nodes Nodes
	var buses []string
	for range count {
		taken, err := ports.Take(2)
		if err != nil {
			return nil, errors.Join(err, nodes.Close())
		}
		bus := fmt.Sprint(taken.Port(1))
		s, err := StartRedis(ctx, &RedisOptions{ports: taken, Lines: append([]string{
			"cluster-enabled yes", "cluster-port " + bus, "cluster-node-timeout 2000"}, lines...)})
		if err != nil {
			return nil, errors.Join(err, taken.Close(), nodes.Close())
		}
		nodes, buses = append(nodes, s), append(buses, bus)
	}
	err := nodes.meet(ctx, buses)
	for _, s := range nodes {
		err = errors.Join(err, awaitCluster(ctx, s, count))
	}
	if err != nil {
		return nil, errors.Join(err, nodes.Close())
	}
	return nodes, nil
}

// meet gives each node its slots and tells the first one of all, who tells the
// others.
func (n Nodes) meet(ctx context.Context, buses []string) error {
	var errs []error
	for i, s := range n {
		host, port, err := net.SplitHostPort(s.Addr())
		errs = append(errs, err,
			RedisDo(ctx, s.Addr(), "CLUSTER", "ADDSLOTSRANGE", i*slots/len(n), (i+1)*slots/len(n)-1),
			RedisDo(ctx, n[0].Addr(), "CLUSTER", "MEET", host, port, buses[i]))
	}
	return errors.Join(errs...)
}

// RedisDo sends one command to the Redis server at addr.
func RedisDo(ctx context.Context, addr string, args ...any) error {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	if err := c.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("env: %v on %s: %w", args, addr, err)
	}
	return nil
}

func awaitCluster(ctx context.Context, s *Server, size int) error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close()
	return Retry(ctx, "the Cluster of "+s.Addr(), func() error {
		info, err := c.ClusterInfo(ctx).Result()
		// Its state is ok without all slots where that is configured.
		for _, line := range []string{"cluster_state:ok", fmt.Sprint("cluster_known_nodes:", size), fmt.Sprint("cluster_slots_assigned:", slots)} {
			if err == nil && !strings.Contains(info, line+"\r") {
				err = errors.New("its nodes do not agree yet")
			}
		}
		return err
	})
}
