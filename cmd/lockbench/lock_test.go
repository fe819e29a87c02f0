//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

// guarded has a server for tests. Its rival field is the client of another host.
type guarded struct {
	binary, dir string
	server      *servers.Server
	rival       *core.Client
}

func startGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{dir: plugins(t), binary: plugintest.Build(t, "github.com/lockbench/lockbench/cmd/lockbench"), server: redisServer(t, nil)}
	b, err := plugin.Open(t.Context(), "redis", &plugin.Options{Dirs: []string{g.dir}, Config: map[string]string{"address": g.server.Addr()}, StartTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	g.rival = core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { g.rival.Close(context.Background()) })
	return g
}

// The command method returns a call of lockbench that runs a shell script under a lock. The slice
// words has the first arguments, for example "lock", "redis" and the name of the lock.
func (g *guarded) command(script string, words ...string) *exec.Cmd {
	words = append(words, "--target", "redis="+g.server.Addr(), "--plugin-dir", g.dir, "--", "sh", "-c", script)
	cmd := exec.Command(g.binary, words...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a shell with job control does the same
	return cmd
}

// acquire acquires and releases a lock as the client of another host.
func (g *guarded) acquire(t *testing.T, name string, granted func()) {
	t.Helper()
	l, err := g.rival.Lock(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	lease, err := l.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	granted()
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
}

// marked returns the running processes, except lockbench, whose arguments contain the text in mark.
func marked(lockbench *exec.Cmd, mark string) (pids []int) {
	for pid, s := range proc.All() {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && pid != lockbench.Process.Pid && !s.Ended() && bytes.Contains(args, []byte(mark)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// start starts "lockbench lock" with a command that leaves two daemons behind. One daemon is in a
// new session. The other daemon is forked twice, and has no open files and no environment. The
// command and its descendants are five processes, each with the text mark in its arguments.
func (g *guarded) start(t *testing.T, words ...string) (cmd *exec.Cmd, mark string) {
	t.Helper()
	mark = fmt.Sprintf("%d.%d", time.Now().UnixNano(), os.Getpid())
	cmd = g.command(fmt.Sprintf(`setsid sleep %[1]s &
		(setsid env -i sh -c 'exec <&- >&- 2>&-; sleep %[1]s; true' &)
		sleep %[1]s; true`, mark), words...)
	cmd.Stderr = os.Stderr
	start(t, cmd)
	eventually(t, "the command and its daemons run", func() bool {
		return len(marked(cmd, mark)) == 5
	})
	return cmd, mark
}

func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // in most tests cmd has already ended
		_ = cmd.Wait()
	})
}

// sleeper is a process of "lockbench lock" whose command only sleeps.
type sleeper struct {
	*exec.Cmd
	keeper, command int
}

func (g *guarded) sleep(t *testing.T, stderr io.Writer, words ...string) *sleeper {
	t.Helper()
	s := &sleeper{Cmd: g.command("exec sleep 600", words...)}
	s.Stderr = stderr
	start(t, s.Cmd)
	eventually(t, "the command runs", func() bool {
		if below := proc.Children(s.Process.Pid); len(below) > 0 {
			s.keeper = below[0]
			s.command = pidOf(s.keeper, "sleep")
		}
		return s.command != 0
	})
	return s
}

// ended waits until cmd has ended. It fails the test if cmd does not end.
func ended(t *testing.T, cmd *exec.Cmd) *os.ProcessState {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = cmd.Wait() // the state says how cmd ended
	}()
	eventually(t, "lockbench ends", func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	})
	return cmd.ProcessState
}

// keeperOf returns the id of the keeper, the child process of lockbench that holds the lock.
func keeperOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	return children(t, cmd.Process.Pid)[0]
}

func often(few, all int) int {
	if os.Getenv("LOCKBENCH_LONG") == "" {
		return few
	}
	return all
}

// rounds is the number of times that a test kills processes.
func rounds() int { return often(2, 20) }

// If a process of "lockbench lock" is killed, the user's command must end before the next grant.
func TestKilledLock(t *testing.T) {
	g := startGuarded(t)
	for _, name := range []string{"front", "keeper", "group", "front that is stopped"} {
		t.Run(name, func(t *testing.T) {
			var waits []time.Duration
			for range rounds() {
				cmd, mark := g.start(t, "lock", "redis", "killed", "--ttl", "50s")
				pid := cmd.Process.Pid
				switch name {
				case "keeper":
					pid = keeperOf(t, cmd)
				case "group":
					pid = -pid
				case "front that is stopped":
					if err := proc.Freeze(pid); err != nil {
						t.Fatal(err)
					}
				}
				killed := time.Now()
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				g.acquire(t, "killed", func() {
					waits = append(waits, time.Since(killed).Round(time.Millisecond))
					if left := marked(cmd, mark); len(left) > 0 {
						t.Errorf("processes %v of the command run beside the next holder", left)
					}
				})
				_ = cmd.Wait()
				if code := cmd.ProcessState.ExitCode(); name == "keeper" && code != 79 {
					t.Errorf("status %d, want 79", code)
				}
			}
			slices.Sort(waits)
			t.Logf("the lock was free after %v to %v, half of %d within %v", waits[0], waits[len(waits)-1], len(waits), waits[len(waits)/2])
			if longest := waits[len(waits)-1]; longest > 25*time.Second {
				t.Errorf("the lock was free after %v: its TTL ended it", longest)
			}
		})
	}
}

// After the plugin is killed, the lease and the command must go on.
func TestLockOutlivesPlugin(t *testing.T) {
	g := startGuarded(t)
	type round struct {
		name   string
		cmd    *exec.Cmd
		killed int
	}
	var all []round
	for i := range rounds() {
		name := fmt.Sprintf("plugin%d", i)
		cmd, _ := g.start(t, "lock", "redis", name, "--ttl", "3s")
		all = append(all, round{name, cmd, pluginOf(keeperOf(t, cmd))})
	}
	for _, r := range all {
		if err := proc.Kill(r.killed); err != nil {
			t.Fatal(err)
		}
	}
	// Wait longer than the TTL, to see whether the new plugin renews the lease.
	killed := time.Now()
	eventually(t, "the TTL is over", func() bool { return time.Since(killed) > 4*time.Second })
	for _, r := range all {
		ends(t, exitOK, strconv.Itoa(r.cmd.Process.Pid), "locks", "inspect", "redis", r.name, "--target", "redis="+g.server.Addr(), "--plugin-dir", g.dir)
		if now := pluginOf(keeperOf(t, r.cmd)); now == 0 || now == r.killed {
			t.Errorf("plugin %d was killed, and now it is %d", r.killed, now)
		}
	}
}

// pluginOf returns the process id of the plugin of the keeper (the lock's holder), or 0 for none.
func pluginOf(keeper int) int { return pidOf(keeper, "lockplugin-") }

// pidOf returns the id of a child process of parent whose arguments contain text, or 0 for none.
func pidOf(parent int, text string) int {
	for _, child := range proc.Children(parent) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child)) // the child may have ended
		if bytes.Contains(args, []byte(text)) {
			return child
		}
	}
	return 0
}

// If lockbench and its keeper (the lock's holder) die together, the kernel must end the user's
// command. The lock must stay held until the TTL is over.
func TestKilledAtOnce(t *testing.T) {
	g := startGuarded(t)
	const ttl = 3 * time.Second
	var all []*sleeper
	for i := range rounds() {
		all = append(all, g.sleep(t, nil, "lock", "redis", fmt.Sprintf("both%d", i), "--ttl", ttl.String()))
	}
	for i, s := range all {
		killed := time.Now()
		for _, pid := range []int{s.Process.Pid, s.keeper} {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		g.acquire(t, fmt.Sprintf("both%d", i), func() {
			if took := time.Since(killed); took < ttl/2 {
				t.Errorf("the lock was free after %v: no process was left to see the command end", took)
			}
			if now, ok := proc.Of(s.command); ok && !now.Ended() {
				t.Errorf("command %d runs beside the next holder", s.command)
			}
		})
	}
}

// If a keeper is killed at its grant, lockbench must free the lock. If a keeper is killed while it
// waits, the holder must keep its lease.
func TestKeeperKilledAtItsGrant(t *testing.T) {
	g := startGuarded(t)
	for i := range 6 * rounds() {
		name := fmt.Sprintf("grant%d", i)
		inspect := func() core.Holder {
			h, err := g.rival.Inspect(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		killed := func(when func() bool, words ...string) {
			cmd := g.command("exec sleep 600", append(words, "--ttl", "50s")...)
			start(t, cmd)
			for end := time.Now().Add(timeout); !when() && time.Now().Before(end); {
			}
			if err := proc.Kill(keeperOf(t, cmd)); err != nil {
				t.Fatal(err)
			}
			if state := ended(t, cmd); state.ExitCode() != 79 {
				t.Errorf("round %d: %v", i, state)
			}
		}
		killed(func() bool { return inspect().Held() }, [][]string{{"lock", "redis", name}, {"lead", "redis", name}, {"lock", "redis", name, "--tick", "1h"}}[i%3]...)
		if h := inspect(); h.Held() {
			t.Errorf("round %d: held by %v", i, h)
		}
		g.acquire(t, name, func() { killed(func() bool { return inspect().Waiters > 0 }, "lock", "redis", name) })
	}
}

// If the keeper (the lock's holder) is killed, lockbench must end, even if its stderr is not read.
func TestKeeperKilledUnread(t *testing.T) {
	g := startGuarded(t)
	for range rounds() {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		_ = w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // pipes support deadlines
		for err == nil {
			_, err = w.Write(make([]byte, 4096))
		}
		s := g.sleep(t, w, "lock", "redis", "unread", "-v", "--ttl", "50s")
		w.Close()
		if err := syscall.Kill(s.keeper, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		g.acquire(t, "unread", func() {})
		if state := ended(t, s.Cmd); state.ExitCode() != 79 {
			t.Errorf("%v, want status 79", state)
		}
	}
}
