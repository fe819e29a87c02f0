package backendtest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
)

// HarmToAWaiter harms the first of two waiters just before the backend b releases the lock. It
// freezes or kills this waiter's host, the host's plugin, or both. The second waiter must get the
// lock. If the first was only frozen, it must get the lock next. If LOCKBENCH_LONG is 1, each case
// runs a hundred times, and the second waiter must get the lock within FirstSpan plus 100 ms.
func HarmToAWaiter(t *testing.T, h *drivertest.Harness, b driver.Backend) {
	long, span := os.Getenv("LOCKBENCH_LONG") == "1", b.Properties().FirstSpan
	// The error of Kill is ignored, because the host may already have killed its frozen plugin.
	goOn := func(pid int) { _ = syscall.Kill(pid, syscall.SIGCONT) }
	for i, harm := range []struct {
		what string
		do   func(t *testing.T, host drivertest.Host) (heal func())
	}{
		{"frozen host", func(t *testing.T, host drivertest.Host) func() {
			host.Freeze(t)
			return func() { host.Resume(t) }
		}},
		{"frozen plugin", func(t *testing.T, host drivertest.Host) func() {
			plugin := host.Plugin()
			plugin.Freeze(t)
			return func() { goOn(plugin.Pid()) }
		}},
		{"frozen host and plugin", func(t *testing.T, host drivertest.Host) func() {
			plugin := host.Plugin()
			host.Freeze(t)
			plugin.Freeze(t)
			return func() { goOn(plugin.Pid()); host.Resume(t) }
		}},
		{"killed host and plugin", func(t *testing.T, host drivertest.Host) func() {
			plugin := host.Plugin()
			host.Freeze(t)
			plugin.Kill(t)
			host.Kill(t)
			return nil
		}},
	} {
		harmed := func(t *testing.T, name string) {
			holder := Acquire(t, b, Request(name, "holder-"+name))
			first, second := h.Host(t, 0), h.Host(t, 0)
			for n, host := range []drivertest.Host{first, second} {
				host.Enqueue(t, name, 10*time.Second, 0)
				Eventually(t, "in the queue", func() bool {
					at, err := b.Inspect(t.Context(), name)
					Must(t, err)
					return at.Waiters == n+1
				})
			}
			has := func(host drivertest.Host) func() bool {
				return func() bool {
					at, err := b.Inspect(t.Context(), name)
					Must(t, err)
					return strings.HasSuffix(at.Label, fmt.Sprint(":", host.Pid())) && at.TTL > span
				}
			}
			heal := harm.do(t, first)
			released := time.Now()
			Must(t, b.Release(t.Context(), holder))
			Eventually(t, "the second is granted it", func() bool {
				at, err := b.Inspect(t.Context(), name)
				Must(t, err)
				return strings.HasSuffix(at.Label, fmt.Sprint(":", second.Pid()))
			})
			took := time.Since(released)
			t.Logf("granted to the second after %v", took)
			if long && took > span+100*time.Millisecond {
				t.Errorf("the second waited for %v", took)
			}
			Eventually(t, "the second has it", has(second))
			if heal != nil {
				heal()
			}
			// A release fails if either the host or the store does not know of the grant.
			releases := func(host drivertest.Host) func() bool {
				return func() bool { return host.Release(t, name) == nil }
			}
			Eventually(t, "the second knows, and releases", releases(second))
			if heal == nil {
				Acquire(t, b, Request(name, "last-"+name))
				return
			}
			Eventually(t, "then the first has it", has(first))
			Eventually(t, "the first knows, and releases", releases(first))
		}
		rounds := 1
		if long {
			rounds = 100
		}
		t.Run(harm.what, func(t *testing.T) {
			for n := range rounds {
				t.Run("", func(t *testing.T) { harmed(t, fmt.Sprint("lock", i, "-", n)) })
			}
		})
	}
}
