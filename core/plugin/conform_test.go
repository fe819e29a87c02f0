package plugin_test

import (
	"context"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/plugins/memory"
)

// The whole conformance suite runs through both wire protocols, inside this process.
func TestConformLoopback(t *testing.T) {
	t.Parallel()
	for name, loopback := range map[string]func(drivertest.T, driver.Backend) driver.Backend{
		"unary": plugintest.UnaryLoopback, "framed": plugintest.Loopback,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, func(drivertest.T) *drivertest.Harness {
				store := memory.NewStore()
				return &drivertest.Harness{
					Open:      func(t drivertest.T) driver.Backend { return loopback(t, store.Open()) },
					InProcess: true,
				}
			})
		})
	}
}

// TestStacksOfPlugin checks that Harness.Stacks returns the goroutine stacks of a frozen plugin.
func TestStacksOfPlugin(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	h := plugintest.Binary(link(t, "far"), func(drivertest.T) driver.Config { return store.config() })(t)
	b := h.Open(t)
	h.Plugin(b).Freeze(t)
	if s := h.Stacks(b); !strings.Contains(s, "SIGQUIT") || !strings.Contains(s, "serve.Main") {
		t.Errorf("a plugin that is asked for its stacks prints %q", s)
	}
}

// told is the memory backend without its queue, but with a method Notify.
type told struct{ driver.Backend }

func (b told) Properties() driver.Properties {
	p := b.Backend.Properties()
	p.FIFO, p.FirstSpan, p.Capabilities = false, 0, []driver.Capability{driver.CapNotifier}
	return p
}

func (b told) Notify(ctx context.Context, name string, emit func()) error {
	first, before := true, ""
	return driver.ObserverOf(b.Backend).Observe(ctx, name, func(h driver.Holder) {
		if first || before != "" && h.Owner != before {
			emit()
		}
		first, before = false, h.Owner
	})
}

func TestConformNotifier(t *testing.T) {
	t.Parallel()
	for _, loopback := range []func(drivertest.T, driver.Backend) driver.Backend{plugintest.UnaryLoopback, plugintest.Loopback} {
		drivertest.Run(t, func(drivertest.T) *drivertest.Harness {
			store := memory.NewStore()
			return &drivertest.Harness{
				Open:      func(t drivertest.T) driver.Backend { return loopback(t, told{store.Open()}) },
				InProcess: true,
			}
		}, "K4 a notifier tells of every release, and of little else", "K1 acquire waits for the release", "K4 no two holders under contention")
	}
}

// The whole conformance suite runs with real plugin and host processes, on a store that outlives
// them. The suite omits the cases that stop the store, because this harness cannot stop a store.
func TestConformProcess(t *testing.T) {
	t.Parallel()
	err := drivertest.Conform(t.Context(), func(t drivertest.T) *drivertest.Harness {
		store := newStore(t)
		return plugintest.Binary(link(t, "far"), func(drivertest.T) driver.Config { return store.config() })(t)
	}, func(rule drivertest.RuleResult) {
		for _, c := range rule.Cases {
			noStore := c.Outcome == drivertest.NotRun && strings.Contains(c.Reason, "Harness.Store")
			if c.Outcome == drivertest.Fail || c.Outcome == drivertest.NotRun && !noStore {
				t.Errorf("%s: %v %s\n%s", c.Case.Name, c.Outcome, c.Reason, c.Log)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
