package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

func TestMain(m *testing.M) {
	host.Main()
	plugintest.Main(m)
}

const (
	module  = "github.com/lockbench/lockbench/"
	timeout = 30 * time.Second
)

func TestActionsAreWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range Actions() {
		if a.Name == "" || a.Inject == nil || seen[a.Name] {
			t.Errorf("%q: incomplete or twice", a.Name)
		}
		seen[a.Name] = true
		if a.On != OnStore && strings.Count(a.Does, "%s") != 1 {
			t.Errorf("%s: %q does not name its target once", a.Name, a.Does)
		}
		if a.Lasts[0] > a.Lasts[1] || (a.Lasts[1] > 0) != (a.Heal != nil) {
			t.Errorf("%s lasts %v, and is healed: %v", a.Name, a.Lasts, a.Heal != nil)
		}
	}
}

// TestOneOfServers checks which settings allow an action that harms a host's path to one server.
func TestOneOfServers(t *testing.T) {
	for setting, want := range map[string]bool{"one": false, "three": true, "balanced": false, "few-operations": false} {
		if why := (Event{Action: "refuse-one"}).action().fits("etcd", setting); (why == "") != want {
			t.Errorf("%s: %q", setting, why)
		}
	}
}

// openSystem starts servers of a backend, with the needs and the setting in the parameter more. It
// also returns a function that starts a host.
func openSystem(t *testing.T, backend string, more servers.Requirements) (*System, func(t *testing.T, wrapper string) *Host) {
	t.Helper()
	plugin := plugintest.Build(t, module+"plugins/"+backend+"/lockplugin-"+backend)
	e, err := kinds.Of(backend).Open(t.Context(), servers.Requirements{
		Needs: more.Needs, TTL: 2 * time.Second, Plugin: plugin, Dir: t.TempDir(),
		Setting: more.Setting,
	})
	servers.Keep(t, backend, e, err)
	w := &System{Environment: e, Dir: t.TempDir()}
	return w, func(t *testing.T, wrapper string) *Host {
		t.Helper()
		h, err := startHost(t, w, backend, plugin, wrapper)
		if err != nil {
			t.Fatal(err)
		}
		w.Hosts = append(w.Hosts, h)
		return h
	}
}

func startHost(t *testing.T, w *System, backend, plugin, wrapper string) (*Host, error) {
	h := &Host{Number: len(w.Hosts)}
	h.Dir = filepath.Join(w.Dir, h.Name())
	err := os.Mkdir(h.Dir, 0o700)
	if err == nil && wrapper != "" {
		plugin, err = wrap(w.Dir, backend, wrapper, plugin)
	}
	if err != nil {
		return nil, err
	}
	proxies, err := w.AddPaths()
	if err != nil {
		return nil, err
	}
	h.Paths = proxies
	h.Process, err = host.Start(t.Context(), host.Spec{
		Backend: backend, Path: plugin, Config: w.ConfigOf(proxies), Host: h.Number, TempDir: h.Dir,
		Resources: host.Resources{Dir: h.Dir},
	})
	return h, err
}

// works makes the test fail unless a host can acquire and release a lock.
func works(t *testing.T, h *Host, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := h.Acquire(host.Locks(name, 1, 2*time.Second), timeout); err != nil {
		t.Fatal(err)
	}
	if err := h.Await(ctx, func(s results.Seen) bool { return s.Held() > 0 }); err != nil {
		t.Fatalf("does not acquire: %v, %+v", err, h.Seen())
	}
	if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}
	h.Forget()
}

// TestActions injects each action on a host, and then heals it. A host that survives must still be
// able to acquire a lock. Nothing of the host or the action may be left behind.
func TestActions(t *testing.T) {
	t.Run("redis", func(t *testing.T) {
		testActions(t, "redis", func(a Action) bool { return !strings.HasSuffix(a.Name, "-one") })
	})
	t.Run("redlock", func(t *testing.T) {
		testActions(t, "redlock", func(a Action) bool { return slices.Contains([]string{"black-hole-one", "refuse-one"}, a.Name) })
	})
}

func testActions(t *testing.T, backend string, wanted func(Action) bool) {
	w, start := openSystem(t, backend, servers.Requirements{})
	h := start(t, "")
	for _, a := range Actions() {
		if a.On != OnHost || !wanted(a) || a.fits(backend, "plain") != "" {
			continue
		}
		t.Run(a.Name, func(t *testing.T) {
			wrappers := []string{""}
			if a.Wrapped {
				wrappers = wrappersThatStay
			} else if !a.Ends {
				testAction(t, w, h, a)
				return
			}
			for _, wrapper := range wrappers {
				h := start(t, wrapper)
				if a.Wrapped && len(h.pluginChain()) < 2 {
					t.Errorf("nothing stays between a host and its plugin of %q", wrapper)
				}
				testAction(t, w, h, a)
				closeHost(t, h)
			}
		})
	}
	closeHost(t, h)
	if err := w.EndBackground(); err != nil {
		t.Error(err)
	}
	if left := loops(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func testAction(t *testing.T, w *System, h *Host, a Action) {
	works(t, h, "before")
	plugin := h.PluginPid()
	e := Event{Action: a.Name, Target: h.Number, Lasts: Duration(a.Lasts[0]), Amount: 0.4}
	if err := a.Inject(t.Context(), w, e); err != nil {
		t.Fatal(err)
	}
	if effect := effects[a.Name]; effect != nil && runtime.GOOS == "linux" {
		eventually(t, "it shows", func() bool { return effect(h) })
	}
	proc.Sleep(t.Context(), time.Duration(e.Lasts))
	if a.Heal != nil {
		ended := false
		w.Begin(e, func() error {
			ended = true
			return nil
		})
		if err := a.Heal(t.Context(), w, e); err != nil {
			t.Error(err)
		}
		if !ended {
			t.Error("what it has begun goes on")
		}
	}
	if a.Ends {
		eventually(t, "the host and its plugin have ended", func() bool { return !h.Alive() && !proc.Running(plugin) })
		return
	}
	if a.Name == "reopen-client" {
		eventually(t, "the old client is closed", func() bool { return len(h.Seen().Calls) > 0 })
	}
	works(t, h, "after")
	for _, pid := range append(h.pluginChain(), h.Pid()) {
		eventually(t, "it runs", func() bool { return !frozen(pid) })
	}
}

// effects has, for the name of an action, a function that reports whether the action has its effect
// now. It leaves out actions whose effect the test cannot see.
var effects = map[string]func(*Host) bool{
	"freeze-host":    func(h *Host) bool { return frozen(h.Pid()) },
	"freeze-plugin":  func(h *Host) bool { return frozen(h.plugin()) },
	"slow-host":      func(h *Host) bool { return frozen(h.Pid()) },
	"slow-plugin":    func(h *Host) bool { return frozen(h.plugin()) },
	"no-descriptors": func(h *Host) bool { return descriptorLimit(h.Pid()) != descriptorLimit(os.Getpid()) },
	"lost-directory": func(h *Host) bool {
		_, err := os.Stat(h.Dir)
		return errors.Is(err, fs.ErrNotExist)
	},
	"starve": func(*Host) bool { return len(loops()) >= runtime.NumCPU() },
}

func descriptorLimit(pid int) string {
	limits, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid)) // without the file there is no line
	for line := range strings.Lines(string(limits)) {
		if strings.HasPrefix(line, "Max open files") {
			return line
		}
	}
	return "none"
}

func TestOverlappingDescriptorLimits(t *testing.T) {
	if noDescriptorLimit != "" {
		t.Skip(noDescriptorLimit)
	}
	want := descriptorLimit(os.Getpid())
	first, err := limitDescriptors(os.Getpid(), 500)
	second, again := limitDescriptors(os.Getpid(), 400)
	if err := errors.Join(err, again, first(), second()); err != nil || descriptorLimit(os.Getpid()) != want {
		t.Errorf("%s instead of %s, %v", descriptorLimit(os.Getpid()), want, err)
	}
}

// loops returns the files in /proc of the busy loops that the action starve has started.
func loops() []string {
	var found []string
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	for _, path := range commands {
		if command, err := os.ReadFile(path); err == nil && strings.Contains(string(command), fmt.Sprintf(busyLoop, 1)) {
			found = append(found, path)
		}
	}
	return found
}

func closeHost(t *testing.T, h *Host) {
	t.Helper()
	chain := h.pluginChain()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := h.Close(ctx); err != nil {
		t.Error(err)
	}
	for _, pid := range append(chain, h.Pid()) {
		eventually(t, fmt.Sprint(pid, " is gone"), func() bool { _, known := proc.Of(pid); return !known })
	}
	if _, err := os.Stat(h.Dir); err != nil {
		t.Error(err)
	}
}

func frozen(pid int) bool {
	s, known := proc.Of(pid)
	return known && s.Stopped()
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("not within %v: %s", timeout, what)
			return
		}
	}
}
