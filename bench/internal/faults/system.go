package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// System has everything that actions act on: the servers of one backend, the hosts of one schedule,
// and the network paths from the hosts to the servers.
type System struct {
	*servers.Environment
	Hosts []*Host
	// Dir is a directory for files that actions need. The player removes Dir after the schedule.
	Dir string

	history *History
}

// Host is one host process of a schedule, with its plugin.
type Host struct {
	*host.Process
	Number int
	Paths  []*inject.Proxy // one path to each server
	// Dir is the directory for temporary files (TMPDIR) of the host and its plugin.
	Dir string
	// asked is the number of locks that the host requested in its last action "ask". askedAt is the
	// time of that action.
	asked, askedAt atomic.Int64
}

// Name is the name of the host in a reproducer: A, B, ...
func (h *Host) Name() string { return hostName(h.Number) }

func hostName(n int) string { return check.HostName(n) }

// Inject begins the action of the event e outside of a schedule. To end the background work of the
// action, call End with the same event; see [inject.Background.End].
func (w *System) Inject(ctx context.Context, e Event) error { return e.action().Inject(ctx, w, e) }

// end is the Heal function of many actions. It ends the background work that event e has begun.
func end(_ context.Context, w *System, e Event) error { return w.End(e) }

// hostWrappers are shell scripts that a host can start in place of its plugin. Each script starts
// the plugin, whose path is in $plugin.
var hostWrappers = map[string]string{
	"shell":      `"$plugin"; exit $?`,
	"env":        `exec env LANG=C "$plugin"`,
	"nice":       `exec nice -n 1 "$plugin"`,
	"background": `"$plugin" & wait`,
	"session":    `setsid --wait "$plugin"`,
}

// wrappersThatStay are those [hostWrappers] whose process keeps running between host and plugin.
var wrappersThatStay = []string{"shell", "background", "session"}

func wrap(dir, name, wrapper, plugin string) (string, error) {
	path := fmt.Sprintf("%s/lockplugin-%s", dir, name)
	text := fmt.Sprintf("#!/bin/sh\nplugin='%s'\n%s\n", plugin, hostWrappers[wrapper])
	return path, os.WriteFile(path, []byte(text), 0o755)
}

func wrapperNames() []string { return slices.Sorted(maps.Keys(hostWrappers)) }

func needsWrapper(actions []Action) bool {
	return slices.ContainsFunc(actions, func(a Action) bool { return a.Wrapped })
}

// ready starts the servers for a setting of the store, unless they already run and are healthy.
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

// The well method reports whether the next schedule can use the servers. It brings unhealthy
// servers back to their first state. When faults of the table are played, it also corrects clocks.
// In a search it returns false if a clock was moved: threads of servers may wait for a time of day.
func (p *player) well(ctx context.Context) bool {
	if p.files != "" {
		return p.environment.Again(ctx) == nil
	}
	return !p.environment.Shifted && (p.environment.Healthy(ctx) == nil || p.environment.Again(ctx) == nil && p.environment.Healthy(ctx) == nil)
}

const maxTTL = 10 * time.Second

// close ends hosts and servers. If close cannot end one of their processes, a watcher process of
// package servers ends that process.
func (p *player) close() {
	p.end()
	if p.environment != nil {
		_ = p.environment.Close()
		p.environment = nil
	}
}

func (p *player) spec(paths []*inject.Proxy, number int, dir, plugin string) host.Spec {
	cfg := driver.Config{}
	maps.Copy(cfg, p.backend.Config)
	maps.Copy(cfg, p.environment.ConfigOf(paths))
	spec := host.Spec{
		Backend: p.backend.Name, Path: plugin, Config: cfg, NoMTLS: p.backend.NoMTLS, Host: number, TempDir: dir,
		Resources: host.Resources{Dir: dir}, Program: p.backend.HostProgram,
	}
	if p.files != "" {
		spec.Resources.Dir = p.files
	}
	return spec
}

func (p *player) start(ctx context.Context, w *System, s Schedule) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for len(p.environment.Paths) < len(s.Hosts) {
		if _, err := p.environment.AddPaths(); err != nil {
			return err
		}
	}
	w.Hosts = make([]*Host, len(s.Hosts))
	return inject.AtOnce(len(s.Hosts), func(i int) error {
		dir := filepath.Join(w.Dir, hostName(i))
		if p.soak {
			if i < len(p.hosts) && p.hosts[i].Alive() {
				w.Hosts[i] = p.hosts[i]
				w.Hosts[i].Forget()
				return nil
			}
			dir = filepath.Join(p.dir, fmt.Sprint(hostName(i), "-", p.plays))
		}
		w.Hosts[i] = &Host{Number: i, Dir: filepath.Join(dir, "tmp"), Paths: p.environment.Paths[i]}
		return p.launch(ctx, w.Hosts[i], dir, s.Hosts[i])
	})
}

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

// ifThere calls do(pid). It returns no error if the process pid does not exist.
func ifThere(do func(pid int) error, pid int) error {
	if pid <= 0 {
		return nil
	}
	if err := do(pid); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func kill(pid int) error { return ifThere(proc.Kill, pid) }

// freeze freezes the process pid, if it exists, until the event e is healed.
func (w *System) freeze(e Event, pid int) error {
	resume, err := w.pause(pid)
	w.Begin(e, resume)
	return err
}

// pause freezes the process pid, if it exists, until the caller calls the resume function. If the
// process has ended by then and another process has its pid, resume acts on that other process.
func (w *System) pause(pid int) (resume func() error, err error) {
	mark, err := servers.Mark(filepath.Dir(w.Dir), pid)
	if err == nil {
		err = ifThere(proc.Freeze, pid)
	}
	return func() error { return errors.Join(ifThere(proc.Resume, pid), os.RemoveAll(mark)) }, err
}

// pluginChain returns the ids of the processes from the wrapper script, which the host has started,
// down to the plugin. Without a wrapper or without /proc, it returns one id, that of the process
// which the host has started. This id is 0 if there is no plugin.
func (h *Host) pluginChain() []int {
	first := h.PluginPid()
	chain := []int{first}
	if first <= 0 {
		return chain
	}
	children := map[int]int{}
	for pid, s := range proc.All() {
		children[s.Parent] = pid
	}
	for pid := children[first]; pid != 0; pid = children[pid] {
		chain = append(chain, pid)
	}
	return chain
}

// plugin returns the process id of the plugin, even if a wrapper script has started the plugin.
func (h *Host) plugin() int {
	chain := h.pluginChain()
	return chain[len(chain)-1]
}
