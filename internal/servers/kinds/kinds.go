// Package kinds lists the stores whose servers lockbench can start, and answers questions about
// these stores. Code for several stores uses package kinds instead of the stores' packages.
package kinds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/etcd"
	"github.com/lockbench/lockbench/internal/servers/memory"
	"github.com/lockbench/lockbench/internal/servers/mysql"
	"github.com/lockbench/lockbench/internal/servers/postgres"
	"github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/internal/servers/redlock"
)

// All returns the known kinds, in the order in which lists show them.
func All() []*servers.Kind {
	return []*servers.Kind{redis.Kind, redlock.Kind, mysql.Kind, postgres.Kind, etcd.Kind, memory.Kind}
}

func Names() []string {
	var names []string
	for _, k := range All() {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return names
}

var added sync.Map

// Add makes [Of] return the kind k for the backend called k.Name. It replaces an earlier kind of
// the same name. Call Add before [Of] is called for that backend.
func Add(k *servers.Kind) { added.Store(k.Name, k) }

// Of returns the kind of a backend's store. For an unknown
// backend it returns a kind that has only the name.
func Of(backend string) *servers.Kind {
	if k, ok := added.Load(backend); ok {
		return k.(*servers.Kind)
	}
	for _, k := range All() {
		if k.Name == backend {
			return k
		}
	}
	return &servers.Kind{Name: backend}
}

// Programs looks for all programs that lockbench starts as local servers or needs for containers.
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

// ErrNoRoute is the error for a configuration with which hosts cannot connect through a proxy.
var ErrNoRoute = errors.New("its connections cannot be led through a proxy")

// Route returns a copy of cfg, the configuration of a backend. In the copy, a proxy's address
// replaces each server's address. The function via returns the proxy's address. Route fails with
// [ErrNoRoute] if cfg turns on TLS, because certificates name the server. It also fails if an
// address is neither a host:port nor in the form of a known store.
func Route(backend string, cfg driver.Config, via func(address string) (string, error)) (driver.Config, error) {
	out := driver.Config{}
	for k, v := range cfg {
		if strings.HasPrefix(k, "tls") && v != "" && v != "false" {
			return nil, fmt.Errorf("%w: %s is set", ErrNoRoute, k)
		}
		out[k] = v
	}
	if led, err := Of(backend).Route(out, via); led {
		return out, err
	}
	all := driver.Config{"address": cfg["address"]}.List("address")
	if _, k := hostIn(cfg["address"]); k != nil && k.Address != nil {
		all = []string{cfg["address"]} // one address, which may contain commas
	}
	for i, address := range all {
		at, _ := hostIn(address)
		_, port, err := net.SplitHostPort(address[at[0]:at[1]])
		if _, notNumber := strconv.Atoi(port); err != nil || notNumber != nil {
			return nil, fmt.Errorf("%w: no host and port", ErrNoRoute)
		}
		to, err := via(address[at[0]:at[1]])
		if err != nil {
			return nil, err
		}
		all[i] = address[:at[0]] + to + address[at[1]:]
	}
	out["address"] = strings.Join(all, ",")
	return out, nil
}

// hostIn returns the position of host:port in the address, and the kind of store whose addresses
// have this form. If there is no such kind, the whole address counts as host:port.
func hostIn(address string) (at []int, k *servers.Kind) {
	for _, k := range All() {
		if k.HostIn == nil {
			continue
		}
		if at := k.HostIn.FindStringSubmatchIndex(address); at != nil {
			return at[2:], k
		}
	}
	return []int{0, len(address)}, nil
}
