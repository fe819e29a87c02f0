package faults

import (
	"context"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// longTTL is that of faults which a lease of this length must survive.
const longTTL = 10 * time.Second

// networks are faults between hosts and servers.
var networks = []Fault{
	{
		Name: "black-hole", Does: "nothing passes between any host and any server for 2 s; TTL 10 s",
		Needs: []servers.Capability{servers.CapRival, servers.CapPaths}, TTL: longTTL, KeepsLeases: true, Acts: 2 * time.Second,
		Inject: onPaths((*inject.Proxy).BlackHole), Heal: onPaths((*inject.Proxy).Heal),
	},
	{
		Name: "reset", Does: "1 % of the requests and answers end in a reset of their connection; TTL 10 s",
		Needs: []servers.Capability{servers.CapRival, servers.CapPaths}, TTL: longTTL, KeepsLeases: true, ActsTTLs: 1,
		Inject: onPaths(func(p *inject.Proxy) error { return p.Reset(0.01) }), Heal: onPaths((*inject.Proxy).Heal),
	},
	{
		Name: "latency", Does: "every answer comes 20 to 60 ms late",
		Needs: []servers.Capability{servers.CapRival, servers.CapPaths}, KeepsLeases: true, ActsTTLs: 1.5,
		Inject: onPaths(func(p *inject.Proxy) error { return p.Delay(40*time.Millisecond, 20*time.Millisecond) }), Heal: onPaths((*inject.Proxy).Heal),
	},
	{
		Name: "fragment", Does: "data come in pieces of 256 bytes, 200 µs apart",
		Needs: []servers.Capability{servers.CapRival, servers.CapPaths}, KeepsLeases: true, ActsTTLs: 1.5,
		Inject: onPaths(func(p *inject.Proxy) error { return p.Fragment(256, 200*time.Microsecond) }), Heal: onPaths((*inject.Proxy).Heal),
	},
	{
		Name: "lost-reply", Does: "half of the holder's acquires reach the servers, the answers do not reach the holder; TTL 10 s",
		Needs: []servers.Capability{servers.CapRival, servers.CapPaths}, TTL: longTTL, KeepsLeases: true, Acts: 2 * time.Second,
		Prepare: func(_ context.Context, s *Setup) error {
			return inject.Each(s.Paths[0], (*inject.Proxy).LoseReplies)
		},
		Inject: func(_ context.Context, s *Setup) error { return inject.Each(s.Paths[0], (*inject.Proxy).Heal) },
	},
}

// onPaths does something to every path of both hosts.
func onPaths(do func(*inject.Proxy) error) func(context.Context, *Setup) error {
	return func(_ context.Context, s *Setup) error {
		return inject.Each(slices.Concat(s.Paths...), do)
	}
}
