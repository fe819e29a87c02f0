package faults

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"

	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/host"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// System is what actions act on: the servers of one backend, and the hosts of
// one schedule with their ways to the servers.
type System struct {
	*servers.Environment
	Hosts []*Host
	// Dir is a directory for what actions need; it is removed at the end.
	Dir string

	history *History
}

// Host is one process with its plugin, as a schedule began it.
type Host struct {
	*host.Process
	Number int
	Paths  []*inject.Proxy // one to each server
	// Dir is the TMPDIR of the host and its plugin.
	Dir string
	// asked is how many locks of groups that ask once it has asked for last, and
	// askedAt when.
	asked, askedAt atomic.Int64
}

// Name is how a reproducer calls the host: A, B, ...
func (h *Host) Name() string { return hostName(h.Number) }

func hostName(n int) string { return check.HostName(n) }

// Inject does an action that needs no schedule. What it does until it is healed is
// begun by the event; see [inject.Background.End].
func (w *System) Inject(ctx context.Context, e Event) error { return e.action().Inject(ctx, w, e) }

// end is the Heal of an action that has begun something.
func end(_ context.Context, w *System, e Event) error { return w.End(e) }

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
