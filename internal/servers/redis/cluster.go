package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/servers"
)

// slots is how many a Redis Cluster has.
const slots = 16384

// StartCluster starts a Redis Cluster of count nodes, each with an equal
// part of the slots and no replica, and returns when all of them agree. The lines
// are further ones of redis.conf.
func StartCluster(ctx context.Context, count int, lines ...string) (servers.Nodes, error) {
	var nodes servers.Nodes
	var buses []string
	for range count {
		taken, err := ports.Take(2)
		if err != nil {
			return nil, errors.Join(err, nodes.Close())
		}
		bus := fmt.Sprint(taken.Port(1))
		s, err := Start(ctx, &Options{ports: taken, Lines: append([]string{
			"cluster-enabled yes", "cluster-port " + bus, "cluster-node-timeout 2000"}, lines...)})
		if err != nil {
			return nil, errors.Join(err, taken.Close(), nodes.Close())
		}
		nodes, buses = append(nodes, s), append(buses, bus)
	}
	err := meet(ctx, nodes, buses)
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

// Do sends one command to the Redis server at addr.
func Do(ctx context.Context, addr string, args ...any) error {
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	defer c.Close()
	if err := c.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("redis: %v on %s: %w", args, addr, err)
	}
	return nil
}

func awaitCluster(ctx context.Context, s *servers.Server, size int) error {
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer c.Close()
	return servers.Retry(ctx, "the Cluster of "+s.Addr(), func() error {
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
