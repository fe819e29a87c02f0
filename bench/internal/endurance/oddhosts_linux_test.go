package endurance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// envOddHost is the environment variable with the oddHost for TestOddHostProcess, as JSON.
const envOddHost = "LOCKBENCH_ODD_HOST"

// oddHost is a host that does something unusual (a habit), which plugins must tolerate.
type oddHost struct {
	Habit  string
	Plugin string
	Path   string
	Config driver.Config
	Rounds int
	Round  int // the number of the next round, in a host that executes itself again
}

// habits are functions that a host calls before it opens plugins. Each returns the function end,
// which the host calls after its last round.
var habits = map[string]func(t *testing.T) (end func()){
	"executes itself anew":   func(*testing.T) func() { return func() {} }, // the host executes itself after each round
	"children follow thread": startFollowers,
}

// TestOddHosts runs hosts with odd habits. Each host opens a plugin, acquires a lock, kills the
// plugin and acquires another lock. No host may panic or leave a process, directory or descriptor.
func TestOddHosts(t *testing.T) {
	each(t, 1, func(t *testing.T, s *system) {
		for habit := range habits {
			t.Run(habit, func(t *testing.T) {
				spec, err := json.Marshal(oddHost{
					Habit: habit, Plugin: s.name, Path: s.binary, Config: s.config, Rounds: count(5, 20),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				host := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestOddHostProcess$", "-test.v")
				host.Env = append(os.Environ(), envOddHost+"="+string(spec))
				host.WaitDelay = 10 * time.Second
				if out, err := host.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	})
}

func TestOddHostProcess(t *testing.T) {
	var h oddHost
	text, ok := os.LookupEnv(envOddHost)
	if !ok {
		t.Skip("started by TestOddHosts")
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		t.Fatal(err)
	}
	end := habits[h.Habit](t)
	if h.Habit == "executes itself anew" {
		h.executeAnew(t)
	} else {
		h.work(t)
	}
	end()
	eventually(t, "no process is left", func() bool {
		// After a process has executed itself, it must still reap its earlier children.
		_, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		return errors.Is(err, syscall.ECHILD)
	})
	eventually(t, "no directory is left", func() bool {
		dirs, err := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("lockplugin-%d-*", os.Getpid())))
		return err == nil && len(dirs) == 0
	})
}

// work does the host's rounds. An extra first round opens the descriptors that may stay open.
func (h oddHost) work(t *testing.T) {
	h.round(t, 0).close(t)
	descriptors := openFiles(t)
	for i := range h.Rounds {
		h.round(t, i+1).close(t)
	}
	eventually(t, "no descriptor is left", func() bool { return openFiles(t) <= descriptors })
}

// executeAnew does one round, and then executes the program again for the next round, like a server
// that upgrades in place. Each round leaves its client open.
func (h oddHost) executeAnew(t *testing.T) {
	if h.Round == h.Rounds {
		return
	}
	h.round(t, h.Round)
	h.Round++
	spec, err := json.Marshal(h)
	if err == nil {
		err = os.Setenv(envOddHost, string(spec))
	}
	if err == nil {
		err = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	t.Fatal(err)
}

type oddClient struct{ *core.Client }

func (c oddClient) close(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.Client.Close(ctx); err != nil {
		t.Error(err)
	}
}

func (h oddHost) round(t *testing.T, n int) oddClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := plugin.Open(ctx, h.Plugin, &plugin.Options{Path: h.Path, Config: h.Config})
	if err != nil {
		t.Fatal(err)
	}
	c := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	name := fmt.Sprintf("odd host %d round %d", os.Getpid(), n)
	first := acquire(t, c, name)
	if err := syscall.Kill(pluginOf(t, b), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	acquire(t, c, name+" again")
	if !first.Valid() {
		t.Errorf("round %d: the lease did not outlive its plugin: %v", n, first.Err())
	}
	return oddClient{c}
}

func pluginOf(t *testing.T, b driver.Backend) (pid int) {
	t.Helper()
	eventually(t, "the plugin is up", func() (ok bool) {
		pid, ok = plugin.ProcessOf(b)
		return ok
	})
	return pid
}

// startFollowers starts children that the kernel kills when the thread that started them ends. The
// end function checks that all of them are still alive.
func startFollowers(t *testing.T) (end func()) {
	var followers []*exec.Cmd
	for range 20 {
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		started := make(chan error)
		go func() { started <- cmd.Start() }()
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		followers = append(followers, cmd)
	}
	return func() {
		for _, cmd := range followers {
			if !plugintest.Running(cmd.Process.Pid) {
				t.Errorf("child %d was killed", cmd.Process.Pid)
			}
			_ = cmd.Process.Kill() // the child may have ended
			_ = cmd.Wait()         // the child was killed
		}
	}
}
