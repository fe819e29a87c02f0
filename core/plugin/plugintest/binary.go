package plugintest

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

const (
	// cleanupBudget bounds each wait while a test case cleans up.
	cleanupBudget = 30 * time.Second
	// startTimeout is long, because many plugins may start at once
	// under the race detector. No test case measures how long a start takes.
	startTimeout = 30 * time.Second
	// dumpTime is the longest time that a plugin gets to print its stacks.
	dumpTime = 2 * time.Second
)

// Binary returns a function that makes harnesses for the plugin binary at path, which must be
// called lockplugin-NAME. The function config is called once for each harness, and must return a
// configuration with an unused namespace. If config is nil, the configuration is empty. Binary sets
// the harness's Open, Plugin, Host and Stacks fields. The caller sets the fields about the store.
// The Host field works only if the running binary's main function or TestMain calls [HostMain].
func Binary(path string, config func(t drivertest.T) driver.Config) func(t drivertest.T) *drivertest.Harness {
	return func(t drivertest.T) *drivertest.Harness {
		t.Helper()
		var cfg driver.Config
		if config != nil {
			cfg = config(t)
		}
		return BinaryWith(path, plugin.Options{Config: cfg})(t)
	}
}

// BinaryWith is like [Binary], but opens the plugin with opts. The harness's Host field uses only
// Config and NoMTLS of opts.
func BinaryWith(path string, opts plugin.Options) func(t drivertest.T) *drivertest.Harness {
	return BinaryOf(strings.TrimPrefix(filepath.Base(path), wire.Prefix), path, opts)
}

// BinaryOf is like [BinaryWith] for the named backend. The binary at path may have any file name.
func BinaryOf(name, path string, opts plugin.Options) func(t drivertest.T) *drivertest.Harness {
	opts.Path = path
	return func(drivertest.T) *drivertest.Harness {
		var printed sync.Map // the *dump of each backend
		return &drivertest.Harness{
			Open: func(t drivertest.T) driver.Backend {
				t.Helper()
				own, d := opts, &dump{}
				own.Logger = slog.New(d)
				b := Open(t, name, &own)
				printed.Store(b, d)
				return b
			},
			Stacks: func(b driver.Backend) string {
				if d, ok := printed.Load(b); ok {
					return d.(*dump).of(pluginPid(b))
				}
				return "" // the Open function above did not open b
			},
			Plugin: func(b driver.Backend) drivertest.Process { return process{pluginPid(b)} },
			Host: func(t drivertest.T, delay time.Duration) drivertest.Host {
				t.Helper()
				return startHost(t, HostSpec{
					Plugin: name, Path: path, Config: opts.Config, NoMTLS: opts.NoMTLS, OnHostDeath: plugin.Policy{Delay: delay},
				})
			},
		}
	}
}

// Open calls plugin.Open for a test case. The backend is closed when the test case ends.
// If opts has no Logger, the plugin's log is discarded. The default StartTimeout is 30 s.
func Open(t drivertest.T, name string, opts *plugin.Options) driver.Backend {
	t.Helper()
	quiet := *opts
	if quiet.Logger == nil {
		quiet.Logger = slog.New(slog.DiscardHandler)
	}
	if quiet.StartTimeout == 0 {
		quiet.StartTimeout = startTimeout
	}
	b, err := plugin.Open(t.Context(), name, &quiet)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupBudget)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("closing the plugin: %v", err)
		}
	})
	return b
}

// pluginPid returns the plugin's process id, or 0 while the plugin is down.
func pluginPid(b driver.Backend) int {
	pid, _ := plugin.ProcessOf(b)
	return pid
}

// dump collects the lines that a plugin logs after the test has asked for the plugin's stacks.
type dump struct {
	asked atomic.Bool
	mu    sync.Mutex
	text  strings.Builder
}

// dump.of sends SIGQUIT to the process pid, and returns the stacks that the process prints on exit.
func (d *dump) of(pid int) string {
	if pid <= 0 {
		return "the plugin is down"
	}
	d.asked.Store(true)
	_ = syscall.Kill(pid, syscall.SIGQUIT)
	_ = syscall.Kill(pid, syscall.SIGCONT)
	read := func() string { d.mu.Lock(); defer d.mu.Unlock(); return d.text.String() }
	last, since := "", time.Now()
	for end := since.Add(dumpTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if now := read(); now != last || Running(pid) {
			last, since = now, time.Now()
		}
		if time.Since(since) > dumpTime/20 { // no line marks the end of the stacks
			break
		}
	}
	return fmt.Sprintf("plugin process %d:\n%s", pid, last)
}

func (d *dump) Enabled(context.Context, slog.Level) bool { return d.asked.Load() }
func (d *dump) WithAttrs([]slog.Attr) slog.Handler       { return d }
func (d *dump) WithGroup(string) slog.Handler            { return d }

func (d *dump) Handle(_ context.Context, r slog.Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text.WriteString(r.Message + "\n")
	return nil
}
