package faults

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/host"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// ready starts the servers of a setting, unless they are there and well.
func (p *player) ready(ctx context.Context, setting string) error {
	if p.environment != nil && p.setting == setting && p.well(ctx) {
		return nil
	}
	p.close()
	e, err := kinds.Of(p.backend.Name).Open(ctx, servers.Requirements{
		Setting: setting, Needs: p.needs, TTL: p.ttl, Plugin: p.backend.Path, Dir: p.dir,
	})
	if err != nil {
		return err
	}
	p.environment, p.setting = e, setting
	return nil
}

// well brings the servers back to where they began, if they are not there. Those
// whose clock has jumped are not well: threads of some wait until a time of day. The
// table moves clocks back.
func (p *player) well(ctx context.Context) bool {
	if p.table != nil {
		return p.environment.Again(ctx) == nil
	}
	return !p.environment.Shifted && (p.environment.Healthy(ctx) == nil || p.environment.Again(ctx) == nil && p.environment.Healthy(ctx) == nil)
}

// maxTTL is the longest of a schedule.
const maxTTL = 10 * time.Second

// close ends hosts and servers. What cannot be ended any more is the watchers' of
// package env.
func (p *player) close() {
	p.end()
	if p.environment != nil {
		_ = p.environment.Close()
		p.environment = nil
	}
}

// spec is how a host is started. A recorder that was built from another version
// gets the same.
func (p *player) spec(paths []*inject.Proxy, number int, dir, plugin string) host.Spec {
	cfg := driver.Config{}
	maps.Copy(cfg, p.backend.Config)
	maps.Copy(cfg, p.environment.ConfigOf(paths))
	spec := host.Spec{
		Backend: p.backend.Name, Path: plugin, Config: cfg, NoMTLS: p.backend.NoMTLS, Host: number, TempDir: dir,
		Resources: host.Resources{Dir: dir}, Program: p.backend.HostProgram,
	}
	if p.table != nil {
		spec.Resources = *p.table
	}
	return spec
}

// start starts the hosts of a schedule.
func (p *player) start(ctx context.Context, w *System, s Schedule) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for slices.Contains(p.needs, servers.CapPaths) && len(p.environment.Paths) < len(s.Hosts) {
		if _, err := p.environment.AddPaths(); err != nil {
			return err
		}
	}
	w.Hosts = make([]*Host, len(s.Hosts))
	return inject.AtOnce(len(s.Hosts), func(i int) error {
		dir := filepath.Join(w.Dir, hostName(i))
		if p.soaks() {
			if i < len(p.hosts) && p.hosts[i].Alive() {
				w.Hosts[i] = p.hosts[i]
				w.Hosts[i].Forget()
				return nil
			}
			dir = filepath.Join(p.dir, fmt.Sprint(hostName(i), "-", p.plays))
		}
		w.Hosts[i] = &Host{Number: i, Dir: filepath.Join(dir, "tmp")}
		if i < len(p.environment.Paths) {
			w.Hosts[i].Paths = p.environment.Paths[i]
		}
		return p.launch(ctx, w.Hosts[i], dir, s.Hosts[i])
	})
}

// launch starts one host.
func (p *player) launch(ctx context.Context, h *Host, dir string, plan HostPlan) error {
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return err
	}
	plugin := p.backend.Path
	if plan.Wrapper != "" {
		var err error
		if plugin, err = wrap(dir, p.backend.Name, plan.Wrapper, plugin); err != nil {
			return err
		}
	}
	var err error
	h.Process, err = host.Start(ctx, p.spec(h.Paths, h.Number, h.Dir, plugin))
	return err
}
