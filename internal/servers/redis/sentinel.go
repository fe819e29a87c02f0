package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/servers"
)

// SentinelMaster is the name under which a [SentinelGroup] is asked for.
const SentinelMaster = "main"

// SentinelGroup is a Redis master with replicas and one Sentinel, which fails
// it over when it is told to.
type SentinelGroup struct {
	Members  servers.Nodes   // the first one is the master to begin with
	Sentinel *servers.Server // at whose address clients ask for [SentinelMaster]
}

// StartSentinel starts a master with the given number of replicas, and their
// Sentinel.
func StartSentinel(ctx context.Context, replicas int) (*SentinelGroup, error) {
	g := &SentinelGroup{}
	// A replica is served at once, and not 5 s after it has asked.
	lines := []string{"repl-diskless-sync-delay 0"}
	master := ""
	for range replicas + 1 {
		s, err := Start(ctx, &Options{Lines: lines})
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		if master == "" {
			master = strings.ReplaceAll(s.Addr(), ":", " ")
			lines = append(lines, "replicaof "+master)
		}
		g.Members = append(g.Members, s)
	}
	var err error
	g.Sentinel, err = Start(ctx, &Options{Args: []string{"--sentinel"}, Lines: []string{
		"sentinel monitor " + SentinelMaster + " " + master + " 1",
		"sentinel down-after-milliseconds " + SentinelMaster + " 1000",
		"sentinel failover-timeout " + SentinelMaster + " 6000"}})
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Close closes all servers.
func (g *SentinelGroup) Close() error { return append(slices.Clone(g.Members), g.Sentinel).Close() }

// FailOver lets Sentinel promote a replica, in order, and returns when it names
// another master, which the other replicas follow: none is left to confirm what
// the old one does.
func (g *SentinelGroup) FailOver(ctx context.Context) error {
	s := goredis.NewSentinelClient(&goredis.Options{Addr: g.Sentinel.Addr()})
	defer s.Close()
	before, err := master(ctx, s)
	if err != nil {
		return err
	}
	// It looks at replicas every 10 s, and knows no good one before.
	if err := servers.Retry(ctx, "Sentinel begins", func() error { return s.Failover(ctx, SentinelMaster).Err() }); err != nil {
		return err
	}
	return servers.Retry(ctx, "another master", func() error {
		now, err := master(ctx, s)
		if err == nil && now == before {
			err = fmt.Errorf("it is still %s", before)
		}
		if err != nil {
			return err
		}
		return followed(ctx, now, len(g.Members)-2)
	})
}

// AwaitReplicas returns when Sentinel knows all replicas of its master, and these
// follow it. It makes an old master one of them after 10 s.
func (g *SentinelGroup) AwaitReplicas(ctx context.Context) error {
	s := goredis.NewSentinelClient(&goredis.Options{Addr: g.Sentinel.Addr()})
	defer s.Close()
	replicas := len(g.Members) - 1
	return servers.Retry(ctx, "Sentinel is ready", func() error {
		known, err := s.Replicas(ctx, SentinelMaster).Result()
		if err != nil {
			return err
		}
		if len(known) < replicas {
			return fmt.Errorf("it knows %d of %d replicas", len(known), replicas)
		}
		addr, err := master(ctx, s)
		if err != nil {
			return err
		}
		return followed(ctx, addr, replicas)
	})
}

// followed returns an error unless the server at addr has as many replicas.
func followed(ctx context.Context, addr string, replicas int) error {
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	defer c.Close()
	linked, err := c.Do(ctx, "WAIT", replicas, 500).Int()
	if err == nil && linked < replicas {
		err = fmt.Errorf("%d of %d replicas follow %s", linked, replicas, addr)
	}
	return err
}

func master(ctx context.Context, s *goredis.SentinelClient) (string, error) {
	addr, err := s.GetMasterAddrByName(ctx, SentinelMaster).Result()
	if err != nil {
		return "", fmt.Errorf("redis: Sentinel names no master: %w", err)
	}
	return net.JoinHostPort(addr[0], addr[1]), nil
}
