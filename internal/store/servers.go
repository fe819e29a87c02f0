package store

import (
	"context"
	"maps"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/env"
)

// Servers are the throwaway servers of one backend, to be measured.
type Servers struct {
	// Config is with what the backend finds them.
	Config driver.Config
	// All of them, in the order of their addresses; none for a backend that
	// has no server, or has it in containers.
	All        env.Nodes
	Containers []*env.Container
	// Admit lets servers that were started, or started again, serve at once,
	// where they would not by themselves. It may be called for all backends.
	Admit func(ctx context.Context) error
}

// Close closes all servers.
func (s *Servers) Close() error { return s.All.Close() }

// Start starts servers of a store that is known, which serve once they are
// admitted. Of products that can do without durability, the others are faster.
// The path of the backend's plugin is plugin.
func (s *Store) Start(ctx context.Context, plugin string, durable bool) (*Servers, error) {
	if s.InHost() {
		return s.of(nil, plugin), nil
	}
	all, err := s.start(ctx, durable)
	if err != nil {
		return nil, err
	}
	servers := s.of(all.Addrs(), plugin)
	servers.All = all
	if durable {
		maps.Copy(servers.Config, s.durable)
	}
	return servers, nil
}

// Up is [Store.Start] in containers.
func (s *Store) Up(ctx context.Context, c *env.Compose, plugin string, durable bool) (*Servers, error) {
	all, err := c.Up(ctx, s.Name, s.services, durable)
	if err != nil {
		return nil, err
	}
	var at []string
	for _, one := range all {
		at = append(at, one.Addr())
	}
	servers := s.of(at, plugin)
	servers.Containers = all
	return servers, nil
}

// of are servers of the store that are reached at the given host:port each.
func (s *Store) of(at []string, plugin string) *Servers {
	out := &Servers{Config: s.config(at), Admit: func(context.Context) error { return nil }}
	if s.admit != nil {
		out.Admit = func(ctx context.Context) error { return s.admit(ctx, plugin, "address="+out.Config["address"]) }
	}
	return out
}
