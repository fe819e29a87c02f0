package explore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/recorder"
	"github.com/lockbench/lockbench/internal/store"
)

// System is what actions act on: the servers of one backend, and the hosts of
// one schedule with their ways to the servers.
type System struct {
	*store.Environment
	Hosts []*Host
	// Dir is a directory for what actions need; it is removed at the end.
	Dir string

	background background
}

// Host is one process with its plugin, as a schedule began it.
type Host struct {
	*recorder.Process
	Number int
	Paths  []*Path // one to each server
	// Dir is the TMPDIR of the host and its plugin.
	Dir string
}

// Name is how a scene calls the host: A, B, ...
func (h *Host) Name() string { return hostName(h.Number) }

func hostName(n int) string { return string(rune('A' + n)) }

// Path is the way from one host to one server. Several actions can harm it at
// the same time. Its methods may be called from any goroutine.
type Path struct {
	Proxy *fault.Proxy

	mu    sync.Mutex
	heals map[any][]func() error
}

// Harm does something to the path, until it is healed by the same key.
func (p *Path) Harm(by any, do func(*fault.Proxy) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	heal, err := p.Proxy.Apart(do)
	if p.heals == nil {
		p.heals = map[any][]func() error{}
	}
	p.heals[by] = append(p.heals[by], heal)
	return err
}

// Heal ends what was done to the path by that key; the rest goes on. The
// connections on which something was swallowed are reset.
func (p *Path) Heal(by any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, heal := range p.heals[by] {
		errs = append(errs, heal())
	}
	delete(p.heals, by)
	return errors.Join(errs...)
}

// Heal ends what was done to any of its paths for an event.
func (h *Host) Heal(e Event) error {
	return eachPath(h.Paths, func(p *Path) error { return p.Heal(e) })
}

func eachPath(paths []*Path, do func(*Path) error) error {
	var errs []error
	for _, p := range paths {
		errs = append(errs, do(p))
	}
	return errors.Join(errs...)
}

// hostWrappers are scripts that stand between a host and its plugin, which is
// $plugin to them.
var hostWrappers = map[string]string{
	"shell":      `"$plugin"; exit $?`,
	"env":        `exec env LANG=C "$plugin"`,
	"nice":       `exec nice -n 1 "$plugin"`,
	"background": `"$plugin" & wait`,
	"session":    `setsid --wait "$plugin"`,
}

// wrappersThatStay are those of [hostWrappers] that are a process between a host
// and its plugin.
var wrappersThatStay = []string{"shell", "background", "session"}

// wrap writes the script of a wrapper, and returns its path.
func wrap(dir, name, wrapper, plugin string) (string, error) {
	path := fmt.Sprintf("%s/lockplugin-%s", dir, name)
	text := fmt.Sprintf("#!/bin/sh\nplugin='%s'\n%s\n", plugin, hostWrappers[wrapper])
	return path, os.WriteFile(path, []byte(text), 0o755)
}

func wrapperNames() []string { return slices.Sorted(maps.Keys(hostWrappers)) }

// needsWrapper reports whether an action is done to the wrapper of a host.
func needsWrapper(actions []Action) bool {
	return slices.ContainsFunc(actions, func(a Action) bool { return a.Wrapped })
}
