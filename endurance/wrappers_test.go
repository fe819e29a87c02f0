package endurance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// wrappers are scripts that stand for a plugin, which is $plugin to them.
var wrappers = map[string]string{
	"shell":      `"$plugin"; exit $?`,
	"env":        `exec env LANG=C "$plugin"`,
	"nice":       `exec nice -n 1 "$plugin"`,
	"background": `"$plugin" & wait`,
	"session":    `setsid --wait "$plugin"`,
	"supervisor": `while :; do "$plugin"; done`,
}

// harms are what is done to the wrapper, or to the plugin, which may be the same
// process.
var harms = []struct {
	name string
	do   func(wrapper, plugin int) error
}{
	{"wrapper killed", func(wrapper, _ int) error { return syscall.Kill(wrapper, syscall.SIGKILL) }},
	{"plugin killed", func(_, plugin int) error { return syscall.Kill(plugin, syscall.SIGKILL) }},
	{"plugin frozen", func(_, plugin int) error { return syscall.Kill(plugin, syscall.SIGSTOP) }},
}

// wrappedTTL outlives the time in which a frozen plugin is found, as a rule.
const wrappedTTL = 6 * time.Second

// TestWrappers harms plugins behind wrappers under a living host: no other host
// is granted the lock while the lease is valid.
func TestWrappers(t *testing.T) {
	each(t, func(t *testing.T, w system, binary string, cfg driver.Config) {
		rival := core.New(plugintest.Open(t, w.name, optionsOf(binary, cfg)), &core.Options{Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() { rival.Close(context.Background()) })
		for name, script := range wrappers {
			t.Run(name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "lockplugin-"+w.name)
				text := fmt.Sprintf("#!/bin/sh\nplugin='%s'\n%s\n", binary, script)
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
				// Only now: a process that is started meanwhile would have the script
				// open for writing, and then it cannot be executed.
				t.Parallel()
				h := &wrappedHolder{name: name}
				grants := h.watch(t, rival)
				for range count(1, 20) {
					// A host of its own: a plugin that ends again and again is started
					// ever later.
					h.backend = plugintest.Open(t, w.name, optionsOf(path, cfg))
					h.client = core.New(h.backend, &core.Options{Logger: slog.New(slog.DiscardHandler)})
					for _, harm := range harms {
						h.round(t, harm.name, harm.do)
					}
					if err := h.client.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				eventually(t, "the other host is granted the free lock", func() bool { return grants.Load() > 0 })
			})
		}
	})
}

// wrappedHolder is a host whose plugin is behind a wrapper.
type wrappedHolder struct {
	name    string
	backend driver.Backend
	client  *core.Client
	lease   atomic.Pointer[core.Lease] // nil while it may be granted to others
	harm    atomic.Pointer[string]
}

// watch tries to acquire the lock through another host until the end of the
// test, which fails when it is granted under a valid lease. It returns how often
// it was granted.
func (h *wrappedHolder) watch(t *testing.T, rival *core.Client) *atomic.Int64 {
	lock, err := rival.Lock("wrapped by "+h.name, &core.LockOptions{TTL: wrappedTTL})
	if err != nil {
		t.Fatal(err)
	}
	var grants atomic.Int64
	ctx := context.WithoutCancel(t.Context())
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			if other, err := lock.TryAcquire(ctx); err == nil {
				// In this order: what is valid after a look was valid at the look.
				if held := h.lease.Load(); held != nil && held.Valid() && other.Valid() {
					t.Errorf("%s: granted to another host while the lease is valid for %v", *h.harm.Load(), time.Until(held.Deadline()))
				}
				grants.Add(1)
				_ = other.Release(ctx) // its TTL ends what is left on a busy machine
			}
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	return &grants
}

// round acquires the lock, does harm, waits for the next plugin and for what the
// old one may still do, and releases the lock.
func (h *wrappedHolder) round(t *testing.T, what string, harm func(wrapper, plugin int) error) {
	t.Helper()
	h.harm.Store(&what)
	lease := acquire(t, h.client, "wrapped by "+h.name, wrappedTTL)
	h.lease.Store(lease)
	wrapper := pluginOf(t, h.backend)
	below := lowest(t, wrapper)
	if err := harm(wrapper, below); err != nil {
		t.Fatal(err)
	}
	eventually(t, what+": there is a new plugin", func() bool {
		now, ok := plugin.ProcessOf(h.backend)
		return ok && now != wrapper
	})
	eventually(t, what+": neither wrapper nor plugin runs", func() bool {
		return !plugintest.Running(below) && !plugintest.Running(wrapper)
	})
	time.Sleep(300 * time.Millisecond) // more than a double grant ever took
	h.lease.Store(nil)
	if err := lease.Release(t.Context()); err != nil && !errors.Is(err, core.ErrNotHeld) {
		t.Error(err)
	}
}

// pluginOf waits for the plugin to be up.
func pluginOf(t *testing.T, b driver.Backend) (pid int) {
	t.Helper()
	eventually(t, "the plugin is up", func() (ok bool) {
		pid, ok = plugin.ProcessOf(b)
		return ok
	})
	return pid
}

// lowest is the last of a chain of processes of which each has one child.
func lowest(t *testing.T, pid int) int {
	t.Helper()
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
		if err != nil {
			t.Fatal(err)
		}
		children := strings.Fields(string(text))
		if len(children) == 0 {
			return pid
		}
		if pid, err = strconv.Atoi(children[0]); err != nil {
			t.Fatal(err)
		}
	}
}
