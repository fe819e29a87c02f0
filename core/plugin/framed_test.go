package plugin_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func TestProtocolIsNegotiated(t *testing.T) {
	s := newStore(t)
	for protocol, framed := range map[int]bool{0: true, 1: false, 2: true} {
		b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: s.config(), Protocol: protocol})
		if plugin.Framed(b) != framed {
			t.Errorf("option %d: framed is %t", protocol, !framed)
		}
		r := request("jobs", "owner")
		token, err := b.TryAcquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		r.Token = token
		if err := b.Release(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	_, err := plugin.Open(t.Context(), "far", &plugin.Options{Path: link(t, "far"), Protocol: 3})
	if !errors.Is(err, driver.ErrConfig) {
		t.Errorf("option 3: %v", err)
	}
}

// Only the plugin process uses the Starter capability. The backend in the host must not declare
// Starter, because that backend has no Start method.
func TestStarterStaysInThePlugin(t *testing.T) {
	b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: newStore(t).config()})
	capabilities := b.Properties().Capabilities
	if slices.Contains(capabilities, driver.CapStarter) || !slices.Contains(capabilities, driver.CapBatcher) {
		t.Errorf("the host has %v", capabilities)
	}
	if driver.StarterOf(b) != nil {
		t.Error("the host can start operations")
	}
}

// A plugin counts as dead when its data connection breaks. Calls under way then have an unknown
// outcome, a new process replaces the plugin, and the leases stay valid.
func TestBrokenDataConnectionIsReplaced(t *testing.T) {
	s := newStore(t)
	b := plugintest.Open(t, "far", &plugin.Options{Path: link(t, "far"), Config: s.config()})
	notices := watch(t, b)
	r := request("jobs", "owner")
	token, err := b.TryAcquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	r.Token = token
	first, _ := plugin.ProcessOf(b)
	_, err = b.Inspect(t.Context(), "hang up")
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) {
		t.Errorf("a call under way: %v", err)
	}
	next(t, notices, driver.NoticeDown)
	next(t, notices, driver.NoticeUp)
	if second, ok := plugin.ProcessOf(b); !ok || second == first {
		t.Errorf("process %d, was %d", second, first)
	}
	if err := b.Renew(t.Context(), r); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if err := b.Release(t.Context(), r); err != nil {
		t.Error(err)
	}
}
