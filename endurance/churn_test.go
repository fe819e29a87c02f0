package endurance_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// TestChurn opens, uses and kills plugins and hosts: no process, no socket
// file, no goroutine and no descriptor may stay behind.
func TestChurn(t *testing.T) {
	each(t, func(t *testing.T, w system, binary string, cfg driver.Config) {
		tmp := t.TempDir()
		t.Setenv("TMPDIR", tmp)
		var pids []int
		churn := func(rounds int) {
			for i := range rounds {
				if i%2 == 0 {
					pids = append(pids, killedPlugin(t, w, binary, cfg))
				} else {
					pids = append(pids, killedHost(t, w, binary, cfg)...)
				}
			}
		}
		churn(4) // what is made once, on first use, is made now
		goroutines, descriptors := runtime.NumGoroutine(), openFiles(t)
		rounds := count(10, 200)
		churn(rounds)
		eventually(t, "no process is left", func() bool {
			for _, pid := range pids {
				if plugintest.Running(pid) {
					return false
				}
			}
			return true
		})
		eventually(t, "no socket file is left", func() bool { return len(sockets(t, tmp)) == 0 })
		eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
		eventually(t, "no descriptor is left", func() bool { return openFiles(t) <= descriptors })
		t.Logf("%d rounds: %d processes, all gone; goroutines %d -> %d, descriptors %d -> %d",
			rounds, len(pids), goroutines, runtime.NumGoroutine(), descriptors, openFiles(t))
	})
}

// killedPlugin uses a plugin, kills it, and closes the backend.
func killedPlugin(t *testing.T, w system, binary string, cfg driver.Config) (pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := plugin.Open(ctx, w.name, optionsOf(binary, cfg))
	if err != nil {
		t.Fatal(err)
	}
	client := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	lease := acquire(t, client, "churn", 30*time.Second)
	pid, _ = plugin.ProcessOf(b)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lease is released through the next plugin", func() bool { return lease.Release(ctx) == nil })
	if err := client.Close(ctx); err != nil {
		t.Error(err)
	}
	return pid
}

// killedHost kills a host that holds a lock, and returns the pids of both
// processes.
func killedHost(t *testing.T, w system, binary string, cfg driver.Config) []int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	host, err := plugintest.StartHost(ctx, plugintest.HostSpec{Plugin: w.name, Path: binary, Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := host.Acquire(ctx, "churn", 30*time.Second, 20*time.Second, 0); err != nil {
		t.Fatal(err)
	}
	child, err := host.PluginPid(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Kill(); err != nil {
		t.Fatal(err)
	}
	return []int{host.Pid(), child}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after 30s: %s", what)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// sockets lists everything below dir that is a socket or a plugin's directory.
func sockets(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && path != dir {
			found = append(found, path)
		}
		return nil // what vanishes while we look is not left behind
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
