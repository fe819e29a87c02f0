package servers

import (
	"context"
	"maps"

	"github.com/lockbench/lockbench/core/driver"
)

// Set is the throwaway servers of one backend, to be measured.
type Set struct {
	// Config is with what the backend finds them.
	Config driver.Config
	// All of them, in the order of their addresses; none for a backend that
	// has no server, or has it in containers.
	All        Nodes
	Containers []*Container
	// Admit lets servers that were started, or started again, serve at once,
	// where they would not by themselves. It may be called for all backends.
	Admit func(ctx context.Context) error
}

// Close closes all servers.
func (s *Set) Close() error { return s.All.Close() }

// Start starts servers of a store that is known, which serve once they are
// admitted. Of products that can do without durability, the others are faster.
// The path of the backend's plugin is plugin.
func (k *Kind) Start(ctx context.Context, plugin string, durable bool) (*Set, error) {
	if k.InHost() {
		return k.of(nil, plugin), nil
	}
	all, err := k.Launch(ctx, durable)
	if err != nil {
		return nil, err
	}
	servers := k.of(all.Addrs(), plugin)
	servers.All = all
	if durable {
		maps.Copy(servers.Config, k.Durable)
	}
	return servers, nil
}

// Up is [Kind.Start] in containers.
func (k *Kind) Up(ctx context.Context, c *Compose, plugin string, durable bool) (*Set, error) {
	all, err := c.Up(ctx, k.Name, k.Services, durable)
	if err != nil {
		return nil, err
	}
	var at []string
	for _, one := range all {
		at = append(at, one.Addr())
	}
	servers := k.of(at, plugin)
	servers.Containers = all
	return servers, nil
}

// of are servers of the store that are reached at the given host:port each.
func (k *Kind) of(at []string, plugin string) *Set {
	out := &Set{Config: k.config(at), Admit: func(context.Context) error { return nil }}
	if k.Admit != nil {
		out.Admit = func(ctx context.Context) error { return k.Admit(ctx, plugin, "address="+out.Config["address"]) }
	}
	return out
}
