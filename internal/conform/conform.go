// Package conform tests a plugin binary against the rules of core/driver. It runs the conformance
// suite of core/drivertest on throwaway servers or on servers of the caller.
package conform

import (
	"context"
	"crypto/rand"
	"maps"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

type Options struct {
	Name, Path string
	// Config is the plugin's configuration, with the address of the server.
	Config driver.Config
	// NoMTLS turns off mutual TLS between host and plugin, for plugins that cannot use it.
	NoMTLS bool
	// Namespaces reports whether the plugin's configuration has a key "prefix". With this key, each
	// case of the suite has a different prefix, and so a separate namespace of locks. Without this
	// key, all cases use the same locks.
	Namespaces bool
	// Servers are the throwaway servers at the addresses in Config. Servers is nil if the servers are
	// the caller's. Run never stops or empties the caller's servers, so it omits the cases in which a
	// server must stop or lose its data.
	Servers *servers.Environment
}

// Run runs the suite and calls the function report with one result for each rule, in
// the order of the rules. It returns an error if the suite could not run at all.
func Run(ctx context.Context, o Options, report func(drivertest.RuleResult)) error {
	return drivertest.Conform(ctx, o.harness, report)
}

func (o Options) harness(t drivertest.T) *drivertest.Harness {
	t.Helper()
	cfg := o.namespace()
	h := plugintest.BinaryOf(o.Name, o.Path, plugin.Options{Config: cfg, NoMTLS: o.NoMTLS})(t)
	if o.Namespaces {
		other := plugintest.BinaryOf(o.Name, o.Path, plugin.Options{Config: o.namespace(), NoMTLS: o.NoMTLS})
		h.Other = func(t drivertest.T) driver.Backend { return other(t).Open(t) }
	}
	if o.Servers != nil {
		if h.NoServer = len(o.Servers.Servers) == 0; !h.NoServer {
			h.Store = Store(o.Servers.Admit, o.Servers.Servers...)
		}
		h.Leftovers = o.leftovers(cfg["prefix"])
	}
	return h
}

func (o Options) namespace() driver.Config {
	cfg := driver.Config{}
	maps.Copy(cfg, o.Config)
	if o.Namespaces {
		cfg["prefix"] += "conform-" + strings.ToLower(rand.Text()[:12]) + "_"
	}
	return cfg
}

// leftovers returns a function that lists a namespace's keys, or nil if keys cannot be listed.
func (o Options) leftovers(prefix string) func(drivertest.T) []string {
	keys := kinds.Of(o.Name).LeftKeys
	if keys == nil {
		return nil
	}
	return func(t drivertest.T) []string {
		t.Helper()
		for end := time.Now().Add(clearWithin); ; time.Sleep(clearPause) {
			var left []string
			for _, s := range o.Servers.Servers {
				some, err := keys(t.Context(), s.Addr(), prefix)
				must(t, err)
				left = append(left, some...)
			}
			// A release needs a majority of the servers. The other servers may delete their keys later.
			if len(left) == 0 || len(o.Servers.Servers) == 1 || time.Now().After(end) {
				return left
			}
		}
	}
}

const (
	clearWithin = 2 * time.Second
	clearPause  = 10 * time.Millisecond
)

// Store returns a drivertest.Store that stops, freezes and starts all servers of a backend at the
// same time. After a start it calls the function admit, if not nil, so that servers vote at once.
func Store(admit func(context.Context) error, servers ...*servers.Server) drivertest.Store {
	return throwaway{servers, admit}
}

type throwaway struct {
	servers []*servers.Server
	admit   func(context.Context) error
}

func (s throwaway) each(t drivertest.T, f func(*servers.Server) error) {
	t.Helper()
	must(t, servers.Nodes(s.servers).AtOnce(f))
}

func (s throwaway) Stop(t drivertest.T)   { t.Helper(); s.each(t, (*servers.Server).Stop) }
func (s throwaway) Freeze(t drivertest.T) { t.Helper(); s.each(t, (*servers.Server).Freeze) }
func (s throwaway) Resume(t drivertest.T) { t.Helper(); s.each(t, (*servers.Server).Resume) }

func (s throwaway) Start(t drivertest.T, keepData bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // the case may have ended
	s.each(t, func(one *servers.Server) error { return one.Start(ctx, keepData) })
	if s.admit != nil {
		must(t, s.admit(ctx))
	}
}

func must(t drivertest.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}
