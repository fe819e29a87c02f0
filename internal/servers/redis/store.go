package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/servers"
)

// store gives operations access to the servers of one environment.
type store struct {
	*servers.Environment
	// admins has a lasting connection to each server that hosts use. If an operation makes a server
	// refuse new connections, this connection can still undo the operation.
	admins []*goredis.Client
	saved  []savedKey // keys to be restored
	moving []slotMove // moves of slots between nodes of a Cluster
	began  []string   // the hosts' ACL rules on each server at the start
}

func newStore(ctx context.Context, e *servers.Environment) (*store, error) {
	s := &store{Environment: e}
	for _, server := range e.Servers {
		c := goredis.NewClient(&goredis.Options{
			Addr: server.Addr(), PoolSize: 1, ConnMaxIdleTime: -1, ContextTimeoutEnabled: true, ReadTimeout: 30 * time.Second,
		})
		s.admins = append(s.admins, c)
		e.AtEnd(c.Close)
	}
	for n := range s.admins {
		rules, err := s.rules(ctx, n)
		if err != nil {
			return nil, err
		}
		s.began = append(s.began, rules)
	}
	return s, nil
}

func (s *store) do(ctx context.Context, n int, args ...any) error {
	if err := s.admins[n].Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("%v: %w", args[:min(len(args), 3)], err)
	}
	return nil
}

// beganAs has the settings that operations change, with their values at the server's start.
var beganAs = map[string]string{
	"maxmemory": "0", "maxmemory-policy": "noeviction", "maxclients": "10000", "min-replicas-to-write": "0",
}

func (s *store) Check(ctx context.Context) error {
	for n := range s.admins {
		if err := s.serverHealthy(ctx, n); err != nil {
			return fmt.Errorf("server %d: %w", n, err)
		}
	}
	if s.Replica == nil {
		return nil
	}
	c := client(s.Replica.Addr())
	defer c.Close()
	if err := replicates(ctx, c, "master_link_status", "up"); err != nil {
		return fmt.Errorf("its replica does not follow: %w", err)
	}
	return nil
}

func (s *store) serverHealthy(ctx context.Context, n int) error {
	// Every server has this account, even if the hosts' plugin logs in as another user.
	host := goredis.NewClient(&goredis.Options{Addr: s.Servers[n].Addr(), Username: servers.HostUser, Password: servers.HostPassword})
	defer host.Close()
	if err := host.Ping(ctx).Err(); err != nil {
		return err
	}
	for name, want := range beganAs {
		has, err := s.admins[n].ConfigGet(ctx, name).Result()
		if err != nil || has[name] != want {
			return fmt.Errorf("%s is %q, not %q: %w", name, has[name], want, err)
		}
	}
	rules, err := s.rules(ctx, n)
	if err != nil || rules != s.began[n] {
		return fmt.Errorf("the account of the hosts is %s, not %s: %w", rules, s.began[n], err)
	}
	if err := replicates(ctx, s.admins[n], "role", "master"); err != nil {
		return err
	}
	switch {
	case s.Config["cluster"] != "":
		return s.agrees(ctx, n)
	case s.Has(servers.CapVotes):
		return s.admitted(ctx, n)
	}
	return nil
}

func (s *store) rules(ctx context.Context, n int) (string, error) {
	all, err := s.admins[n].ACLList(ctx).Result()
	i := slices.IndexFunc(all, func(line string) bool { return strings.HasPrefix(line, "user "+servers.HostUser+" ") })
	if err != nil || i < 0 {
		return "", fmt.Errorf("hosts have no account: %w", err)
	}
	return all[i], nil
}

// agrees returns nil if node n of a Cluster reports that all
// slots are served and that none of its slots is being moved.
func (s *store) agrees(ctx context.Context, n int) error {
	info, err := s.admins[n].ClusterInfo(ctx).Result()
	if err != nil || !strings.Contains(info, "cluster_state:ok") {
		return fmt.Errorf("its Cluster is not whole: %w", err)
	}
	nodes, err := s.admins[n].ClusterNodes(ctx).Result()
	if err == nil && (strings.Contains(nodes, "->-") || strings.Contains(nodes, "-<-")) {
		err = errors.New("a slot is being moved")
	}
	return err
}

// admitted returns nil if node n votes.
func (s *store) admitted(ctx context.Context, n int) error {
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

// Left lists the keys that contain prefix. If the servers vote, a release need not reach all
// servers. So Left omits keys that will expire and that only a minority of the servers has.
func (s *store) Left(ctx context.Context, prefix string) ([]string, error) {
	on := map[string]int{}
	for _, c := range s.admins {
		keys, err := scan(ctx, c, "*"+prefix+"*")
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			ttl, err := c.PTTL(ctx, key).Result()
			if err != nil {
				return nil, err
			}
			if on[key]++; ttl == forever {
				on[key] += len(s.admins)
			}
		}
	}
	var left []string
	for _, key := range slices.Sorted(maps.Keys(on)) {
		if !s.Has(servers.CapVotes) || on[key] > len(s.admins)/2 {
			left = append(left, fmt.Sprintf("the key %q", key))
		}
	}
	return left, nil
}

// forever is the reply of PTTL for a key that does not expire.
const forever = -1
