// Package kinds lists the stores whose servers can be started, and answers what
// takes all of them. Everything outside the packages of products asks it.
package kinds

import (
	"context"
	"slices"

	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/etcd"
	"github.com/lockbench/lockbench/internal/servers/memory"
	"github.com/lockbench/lockbench/internal/servers/mysql"
	"github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/internal/servers/redlock"
)

// All are those that are known, in the order in which they are shown.
func All() []*servers.Kind {
	return []*servers.Kind{redis.Kind, redlock.Kind, mysql.Kind, etcd.Kind, memory.Kind}
}

// Names are theirs, sorted.
func Names() []string {
	var names []string
	for _, k := range All() {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return names
}

// Of is the kind of a backend's store. Of one that is not known nothing is known
// but the name.
func Of(backend string) *servers.Kind {
	for _, k := range All() {
		if k.Name == backend {
			return k
		}
	}
	return &servers.Kind{Name: backend}
}

// Programs looks for all that local servers and containers are made of.
func Programs(ctx context.Context) []servers.Program {
	var all []servers.Program
	for _, k := range All() {
		if k.Program == nil {
			continue
		}
		p := k.Program()
		if i := slices.IndexFunc(all, func(other servers.Program) bool { return other.Name == p.Name }); i >= 0 {
			all[i].For += ", " + k.Name
			continue
		}
		p.For = k.Name
		all = append(all, p)
	}
	all = append(all, servers.ContainerPrograms()...)
	for i := range all {
		all[i].AskVersion(ctx)
	}
	return all
}
