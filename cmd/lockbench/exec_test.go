//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
)

func TestExecHandsTheStatusOn(t *testing.T) {
	binary := plugintest.Build(t, "github.com/lockbench/lockbench/cmd/lockbench")
	for _, tt := range []struct {
		script, grace string
		want          int
		text          string
	}{
		{"exit 0", "1s", 0, ""},
		{"exit 9", "1s", 9, ""},
		{"kill -9 $$", "1s", 137, ""},
		{"(sleep 0.2; echo orphan) & exit 3", "30s", 3, "orphan"}, // exec waits for the orphan
		{"sleep 60 >/dev/null 2>&1 & exit 4", "1s", 4, "still runs after"},
	} {
		cmd := exec.CommandContext(t.Context(), binary, "exec", "--grace", tt.grace, "--", "sh", "-c", tt.script)
		out, _ := cmd.CombinedOutput() // only the status and the output matter
		if got := cmd.ProcessState.ExitCode(); got != tt.want || !strings.Contains(string(out), tt.text) {
			t.Errorf("%q: status %d, want %d; %q", tt.script, got, tt.want, out)
		}
	}
	ends(t, exitUsage, "needs a program", "exec")
	ends(t, 127, "no-such-program", "exec", "--", "no-such-program")
}

// container is an application that holds a lock and runs in a PID namespace, as in a container.
type container struct {
	cmd  *exec.Cmd
	app  int // process id of the holder, as seen from outside its namespace
	init int
}

func startContainer(t *testing.T, redis, address string, ttl time.Duration, direct bool) *container {
	t.Helper()
	holder := plugintest.Build(t, "./testdata/holder")
	args := []string{"-pf", "--mount-proc", "--kill-child"}
	if !direct {
		args = append(args, plugintest.Build(t, "github.com/lockbench/lockbench/cmd/lockbench"), "exec", "--")
	}
	c := &container{cmd: exec.Command("unshare", append(args, holder, redis, address, ttl.String())...)}
	c.cmd.Stderr = os.Stderr
	// A killed container leaves its sockets in this directory. The directory's name is short, because
	// the system limits the length of a socket's path.
	tmp, err := os.MkdirTemp("", "exec-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	c.cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "held\n" {
		t.Fatalf("the holder printed %q (%v)", line, err)
	}
	c.init = children(t, c.cmd.Process.Pid)[0]
	c.app = c.init
	if !direct {
		c.app = children(t, c.init)[0]
	}
	return c
}

func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, child)
		}
	}
	if len(all) == 0 {
		t.Fatalf("process %d has no children", pid)
	}
	return all
}

// TestExecAsInit kills a holder or its container, and checks how long the next client must wait.
func TestExecAsInit(t *testing.T) {
	if out, err := exec.Command("unshare", "-pf", "--mount-proc", "true").CombinedOutput(); err != nil {
		servers.Missing(t, "namespaces", fmt.Errorf("%w: PID namespaces: %v, %s", servers.ErrNotInstalled, err, out))
	}
	redis := plugintest.Build(t, "github.com/lockbench/lockbench/plugins/redis/lockplugin-redis")
	server := redisServer(t, nil)
	b, err := plugin.Open(t.Context(), "redis", &plugin.Options{Path: redis, Config: map[string]string{"address": server.Addr()}, StartTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	client := core.New(b, nil)
	t.Cleanup(func() { client.Close(context.Background()) })
	lock, err := client.Lock("app", nil)
	if err != nil {
		t.Fatal(err)
	}
	waited := func(t *testing.T, do func()) time.Duration {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		do()
		lease, err := lock.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
		t.Logf("the lock was free after %v", took.Round(time.Millisecond))
		return took
	}
	kill := func(pid int, sig syscall.Signal) func() {
		return func() {
			if err := syscall.Kill(pid, sig); err != nil {
				t.Error(err)
			}
		}
	}

	const patient = 50 * time.Second // a TTL so long that no test waits for its end
	t.Run("app killed under exec", func(t *testing.T) {
		c := startContainer(t, redis, server.Addr(), patient, false)
		if took := waited(t, kill(c.app, syscall.SIGKILL)); took > patient/2 {
			t.Errorf("the lock was free after %v: the TTL ended it, not the plugin", took)
		}
		_ = c.cmd.Wait()
		if code := c.cmd.ProcessState.ExitCode(); code != 137 {
			t.Errorf("exec ended with status %d, want 137", code)
		}
	})
	t.Run("SIGTERM to exec", func(t *testing.T) {
		c := startContainer(t, redis, server.Addr(), patient, false)
		waited(t, kill(c.init, syscall.SIGTERM))
		_ = c.cmd.Wait()
		if code := c.cmd.ProcessState.ExitCode(); code != 7 {
			t.Errorf("exec ended with status %d, want the holder's 7", code)
		}
	})
	const ttl = 2 * time.Second
	for name, direct := range map[string]bool{"whole container killed": false, "app that is the init killed": true} {
		t.Run(name, func(t *testing.T) {
			c := startContainer(t, redis, server.Addr(), ttl, direct)
			if took := waited(t, kill(c.init, syscall.SIGKILL)); took < ttl/3 {
				t.Errorf("the lock was free after %v: somebody has released it, and nobody was left to", took)
			}
		})
	}
}
