//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

// guarded is what commands under a lock are tested with: the binary, a store, and a
// client that is another host.
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

// command is a lockbench command line of words, with the script behind it.
func (g *guarded) command(script string, words ...string) *exec.Cmd {
	words = append(words, "--target", "redis="+g.server.Addr(), "--plugin-dir", g.dir, "--", "sh", "-c", script)
	cmd := exec.Command(g.binary, words...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell with job control does
	return cmd
}

// acquire acquires a lock as the other host, and gives it back.
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

// marked are the processes that run whose arguments contain mark, but for lockbench.
func marked(lockbench *exec.Cmd, mark string) (pids []int) {
	for pid, s := range proc.All() {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && pid != lockbench.Process.Pid && !s.Ended() && bytes.Contains(args, []byte(mark)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// start starts a command that leaves daemons behind: one in a session of its own, and
// one that has forked twice with neither descriptors nor environment. It returns when
// all five processes are there, with what they have in their arguments.
func (g *guarded) start(t *testing.T, words ...string) (cmd *exec.Cmd, mark string) {
	t.Helper()
	mark = fmt.Sprintf("%d.%d", time.Now().UnixNano(), os.Getpid())
	cmd = g.command(fmt.Sprintf(`setsid sleep %[1]s &
		(setsid env -i sh -c 'exec <&- >&- 2>&-; sleep %[1]s; true' &)
		sleep %[1]s; true`, mark), words...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // most tests have ended it
		_ = cmd.Wait()
	})
	eventually(t, "the command and its daemons run", func() bool {
		return len(marked(cmd, mark)) == 5
	})
	return cmd, mark
}

// keeperOf is the process that keeps the lock for cmd.
func keeperOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	return children(t, cmd.Process.Pid)[0]
}

// often is how many times a test does something: all only with LOCKBENCH_LONG.
func often(few, all int) int {
	if os.Getenv("LOCKBENCH_LONG") == "" {
		return few
	}
	return all
}

// rounds are for tests with a kill in them.
func rounds() int { return often(2, 20) }

// TestKilledLock is the claim of the command: whichever of its processes is killed,
// the next holder finds nothing of what it has run, and needs not wait for the TTL.
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

// TestLockOutlivesPlugin: a plugin that is killed takes neither lease nor command with it.
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
	// Longer than the TTL: the new plugins renew, too.
	killed := time.Now()
	eventually(t, "the TTL is over", func() bool { return time.Since(killed) > 4*time.Second })
	for _, r := range all {
		ends(t, exitOK, strconv.Itoa(r.cmd.Process.Pid), "locks", "inspect", "redis", r.name, "--target", "redis="+g.server.Addr(), "--plugin-dir", g.dir)
		if now := pluginOf(keeperOf(t, r.cmd)); now == 0 || now == r.killed {
			t.Errorf("plugin %d was killed, and now it is %d", r.killed, now)
		}
	}
}

// pluginOf is the plugin of a keeper, 0 for none.
func pluginOf(keeper int) int {
	for _, child := range proc.Children(keeper) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child)) // it may have ended
		if bytes.Contains(args, []byte("lockplugin-")) {
			return child
		}
	}
	return 0
}

func TestLockStatus(t *testing.T) {
	g := startGuarded(t)
	odd := filepath.Join(t.TempDir(), "odd")
	if err := os.WriteFile(odd, []byte("\x7fELF"), 0o700); err != nil {
		t.Fatal(err)
	}
	busy, _ := g.start(t, "lock", "redis", "busy")
	for _, tt := range []struct {
		args, script string
		want         int
		text         string // of all output; "" for none
	}{
		{"lock redis free", "exit 0", 0, ""},
		{"lock redis free", "exit 9", 9, ""},
		{"lock redis free", "kill -9 $$", 137, ""},
		{"lock redis free", "cat; echo $LOCKBENCH_LOCK; test $LOCKBENCH_TOKEN -gt 0 && date -d $LOCKBENCH_LEASE_UNTIL >/dev/null", 0, "typed\nfree\n"},
		{"lock redis free", g.binary + " lock redis inner --target redis=" + g.server.Addr() + " --plugin-dir " + g.dir + " -- sh -c 'echo $LOCKBENCH_LOCK'", 0, "inner\n"},
		{"lock redis free -v", "exit 0", 0, "released"},
		{"lock redis free", "sleep 0.3 & exit 5", 5, ""}, // it stays for what is left behind
		{"lock redis free --max-hold 100ms", "sleep 600", 79, "longest time"},
		{"lock redis busy --try", "exit 0", 75, ""},
		{"lock redis busy --try --conflict-exit-code 0", "exit 1", 0, ""},
		{"lock redis busy --wait 100ms", "exit 0", 75, ""},
		{"lock redis busy --wait 100ms -v", "exit 0", 75, ":" + strconv.Itoa(busy.Process.Pid)},
		{"lock redis free --ttl 1ms", "exit 0", exitUsage, "1ms"},
		{"lock redis free --target redis=127.0.0.1:1 --try", "exit 0", exitEnvironment, "--target"},
		{"lock redis free --target redis=127.0.0.1:1 --wait 200ms", "exit 0", exitEnvironment, "--target"},
		{"lock memory free", "exit 0", exitUsage, "no other process"},
		{"lead redis led", "exit 4", 4, ""},
		{"lead redis led --max-hold 100ms", "trap 'exit 7' TERM; [ -e " + odd + ".again ] && exit 6; touch " + odd + ".again; sleep 600 & wait", 6, "longest time"},
	} {
		cmd := g.command(tt.script, strings.Fields(tt.args)...)
		if strings.Contains(tt.args, "--target") || strings.Contains(tt.args, "memory") {
			i := slices.Index(cmd.Args, "redis="+g.server.Addr())
			cmd.Args = slices.Delete(cmd.Args, i-1, i+1)
		}
		cmd.Stdin = strings.NewReader("typed\n")
		out, _ := cmd.CombinedOutput() // the status is what is looked at
		got := cmd.ProcessState.ExitCode()
		if got != tt.want || !strings.Contains(string(out), tt.text) || tt.text == "" && len(out) > 0 {
			t.Errorf("%s -- %s: status %d, want %d and %q; %s", tt.args, tt.script, got, tt.want, tt.text, out)
		}
	}
	ends(t, 127, "not found", "lock", "redis", "free", "--", "no-such-program")
	ends(t, 126, "permission denied", "lock", "redis", "free", "--", "/etc/passwd")
	ends(t, exitUsage, "behind -- a command", "lock", "redis", "free", "true")
	for program, want := range map[string]int{odd: 126} {
		cmd := exec.Command(g.binary, "lock", "redis", "free", "--target", "redis="+g.server.Addr(), "--plugin-dir", g.dir, "--", program)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want || !strings.Contains(string(out), program) {
			t.Errorf("%s: status %d, want %d; %s", program, got, want, out)
		}
	}
}

// TestLockAtLeast: a lock stays taken for so long although its command has ended.
func TestLockAtLeast(t *testing.T) {
	g := startGuarded(t)
	for _, status := range []int{0, 75} {
		cmd := g.command("exit 0", "lock", "redis", "tick", "--try", "--at-least", "30s")
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != status {
			t.Errorf("status %d, want %d; %s", got, status, out)
		}
	}
}

// TestLockTick: of those that ask for one tick the first runs, and is told which it is;
// what is killed in it is not run again. The tick has begun minutes ago, and does not end
// for as long.
func TestLockTick(t *testing.T) {
	g := startGuarded(t)
	tick := time.Hour
	for since := time.Since(time.Now().Truncate(tick)); since < time.Minute || since > tick/2; since = time.Since(time.Now().Truncate(tick)) {
		tick += time.Minute
	}
	for i, status := range []int{128 + 9, 75, 75} {
		cmd := g.command("test -n \"$LOCKBENCH_TICK\" && kill -9 $$", "lock", "redis", "yearly", "--tick", tick.String())
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != status {
			t.Errorf("run %d: status %d, want %d; %s", i, got, status, out)
		}
	}
	if out, err := g.command("exit 0", "lock", "redis", "yearly", "--tick", "1m", "--try").CombinedOutput(); err == nil {
		t.Errorf("--tick beside --try was accepted: %s", out)
	}
}

// TestLockIsLost: the command ends before its lease has, whatever it makes of SIGTERM.
func TestLockIsLost(t *testing.T) {
	g := startGuarded(t)
	const ttl = 2 * time.Second
	where := []string{"--target", "redis=" + g.server.Addr(), "--plugin-dir", g.dir}
	for name, lose := range map[string]func(*exec.Cmd){
		"broken": func(*exec.Cmd) {
			ends(t, exitOK, "broke", append([]string{"locks", "break", "redis", "lost", "--yes"}, where...)...)
		},
		"frozen store": func(*exec.Cmd) {
			if err := g.server.Freeze(); err != nil {
				t.Fatal(err)
			}
		},
		"stopped keeper": func(cmd *exec.Cmd) {
			if err := proc.Freeze(keeperOf(t, cmd)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds() {
				termed := filepath.Join(t.TempDir(), "termed")
				cmd := g.command("trap 'touch "+termed+"' TERM; touch "+termed+".not; while :; do sleep 0.01; done", "lock", "redis", "lost", "--ttl", ttl.String())
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				// Note: its arguments are those of what starts the keeper, too, for a moment.
				eventually(t, "it runs", func() bool {
					_, err := os.Stat(termed + ".not")
					return err == nil
				})
				lost := time.Now()
				lose(cmd)
				for len(marked(cmd, termed)) > 0 {
					if took := time.Since(lost); took > ttl {
						t.Errorf("it runs %v after its lease could last be renewed", took)
						break
					}
					time.Sleep(time.Millisecond)
				}
				if name == "frozen store" {
					if err := g.server.Resume(); err != nil {
						t.Fatal(err)
					}
					if _, err := os.Stat(termed); err != nil {
						t.Errorf("it was not asked to end: %v", err)
					}
				}
				_ = cmd.Wait()
				if got := cmd.ProcessState.ExitCode(); got != 79 {
					t.Errorf("status %d, want 79", got)
				}
			}
		})
	}
}

// TestInterruptedWaiter: one that waits for a lock ends with the status of its signal,
// and leaves neither process nor place in the queue.
func TestInterruptedWaiter(t *testing.T) {
	g := startGuarded(t)
	g.start(t, "lock", "redis", "busy")
	for i := range rounds() {
		sig := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}[i%3]
		tmp := t.TempDir()
		cmd := g.command("exit 1", "lock", "redis", "busy")
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waiters := func() string {
			_, stdout, _ := lockbench(t, "locks", "inspect", "redis", "busy", "--target", "redis="+g.server.Addr(), "--plugin-dir", g.dir)
			return stdout
		}
		eventually(t, "it waits", func() bool { return strings.Contains(waiters(), "waiters   1") })
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != 128+int(sig) && sig != syscall.SIGKILL {
			t.Errorf("%v: status %d", sig, got)
		}
		eventually(t, "nothing of it is left", func() bool {
			entries, err := os.ReadDir(tmp)
			return err == nil && len(entries) == 0 && len(processesWith(tmp)) == 0
		})
		eventually(t, "its place is free", func() bool { return strings.Contains(waiters(), "waiters   0") })
	}
}

// TestManyLocks starts many commands at once, and then many in a row. Each has the lock
// alone, and nothing is left of them.
func TestManyLocks(t *testing.T) {
	g := startGuarded(t)
	atOnce, inRow := often(10, 100), often(5, 1000)
	tmp, file := t.TempDir(), filepath.Join(t.TempDir(), "count")
	start := func() *exec.Cmd {
		cmd := g.command("n=$(cat "+file+" 2>/dev/null || echo 0); sleep 0.005; echo $((n+1)) >"+file, "lock", "redis", "many", "--ttl", "30s")
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	wait := func(cmd *exec.Cmd) {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, cmd.Stderr)
		}
	}
	var all []*exec.Cmd
	for range atOnce {
		all = append(all, start())
	}
	for _, cmd := range all {
		wait(cmd)
	}
	for range inRow {
		wait(start())
	}
	if text, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(atOnce+inRow) {
		t.Errorf("counted %q, want %d (%v)", text, atOnce+inRow, err)
	}
	entries, err := os.ReadDir(tmp)
	if err != nil || len(entries) > 0 || len(processesWith(tmp)) > 0 {
		t.Errorf("left: %v, %v (%v)", entries, processesWith(tmp), err)
	}
	ends(t, exitOK, "no lock is held", "locks", "list", "redis", "--target", "redis="+g.server.Addr(), "--plugin-dir", g.dir)
}

// TestLockNamesAreCompleted: the names of the locks that are held, where the flags say.
func TestLockNamesAreCompleted(t *testing.T) {
	dir := plugins(t)
	s := redisServer(t, nil)
	c := holder(t, dir, s.Addr())
	hold(t, c, "jobs/refresh")
	hold(t, c, "other")
	for _, command := range [][]string{{"lock"}, {"lead"}, {"locks", "inspect"}, {"locks", "break"}} {
		args := append(append([]string{"__complete"}, command...), "--target", "redis="+s.Addr(), "--plugin-dir", dir, "redis", "jo")
		if code, stdout, _ := lockbench(t, args...); code != exitOK || !strings.HasPrefix(stdout, "jobs/refresh\n") || strings.Contains(stdout, "other") {
			t.Errorf("%v: exit %d, %q", command, code, stdout)
		}
	}
}

// TestManualPages: each command has one, and each shell its completions.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	ends(t, exitOK, "", "man", dir)
	for _, c := range commands(newRoot()) {
		page := filepath.Join(dir, "share", "man", "man1", strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		text, err := os.ReadFile(page)
		if err != nil || !bytes.Contains(text, []byte(".SH EXAMPLE")) {
			t.Errorf("%s: %v", page, err)
		}
	}
	for _, file := range []string{"bash-completion/completions/lockbench", "zsh/site-functions/_lockbench", "fish/vendor_completions.d/lockbench.fish"} {
		if text, err := os.ReadFile(filepath.Join(dir, "share", file)); err != nil || !bytes.Contains(text, []byte("__complete")) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
