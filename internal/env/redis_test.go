package env

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// timeout bounds what a test waits for on a machine that is busy.
const timeout = 30 * time.Second

// startRedis skips when there is no server, unless LOCKBENCH_REQUIRE names it.
func startRedis(t *testing.T, o *RedisOptions) *Server {
	t.Helper()
	s, err := StartRedis(t.Context(), o)
	Keep(t, "redis", s, err)
	return s
}

// ask sends inline commands and returns one line of reply for each.
func ask(t *testing.T, s *Server, commands ...string) []string {
	t.Helper()
	c, err := net.DialTimeout("tcp", s.Addr(), timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(timeout))
	r := bufio.NewReader(c)
	var replies []string
	for _, cmd := range commands {
		fmt.Fprintf(c, "%s\r\n", cmd)
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(cmd, err)
		}
		replies = append(replies, strings.TrimSpace(line))
	}
	return replies
}

func TestRedisKeepsOrLosesData(t *testing.T) {
	for _, fsync := range []Fsync{FsyncNone, FsyncEverySec, FsyncAlways} {
		t.Run(string(fsync), func(t *testing.T) {
			s := startRedis(t, &RedisOptions{AppendFsync: fsync})
			if got := ask(t, s, "SET a 1"); got[0] != "+OK" {
				t.Fatal(got)
			}
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			if pid := s.Pid(); pid != 0 {
				t.Errorf("Pid of a stopped server = %d", pid)
			}
			err := s.Start(t.Context(), true)
			if fsync == FsyncNone {
				if err == nil {
					t.Fatal("started with data that nobody has written")
				}
			} else if err != nil {
				t.Fatal(err)
			} else if got := ask(t, s, "EXISTS a"); got[0] != ":1" {
				t.Errorf("after a start with data: EXISTS = %s", got[0])
			}
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			if err := s.Start(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if got := ask(t, s, "EXISTS a"); got[0] != ":0" {
				t.Errorf("after a start without data: EXISTS = %s", got[0])
			}
		})
	}
}

func TestRedisFreeze(t *testing.T) {
	s := startRedis(t, nil)
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	c, err := net.DialTimeout("tcp", s.Addr(), timeout)
	if err != nil {
		t.Fatal("the kernel accepts for a frozen server:", err)
	}
	defer c.Close()
	fmt.Fprint(c, "PING\r\n")
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	reply := make([]byte, 5)
	if _, err := c.Read(reply); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a frozen server answered %q, %v", reply, err)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(timeout))
	if _, err := c.Read(reply); err != nil || string(reply) != "+PONG" {
		t.Errorf("after Resume: %q, %v", reply, err)
	}
}

func TestRedisPassword(t *testing.T) {
	s := startRedis(t, &RedisOptions{Password: `pa"ss word`})
	got := ask(t, s, "GET a", `AUTH "pa\"ss word"`)
	if !strings.HasPrefix(got[0], "-NOAUTH") || got[1] != "+OK" {
		t.Error(got)
	}
}

func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := StartRedis(t.Context(), nil)
	if !errors.Is(err, ErrNotInstalled) {
		t.Fatal(err)
	}
	for _, want := range []string{"apt-get install redis-server", "brew install redis"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestBadConfigurationSaysWhy(t *testing.T) {
	s, err := StartRedis(t.Context(), &RedisOptions{Lines: []string{"no-such-directive yes"}})
	if errors.Is(err, ErrNotInstalled) {
		Missing(t, "redis", err)
	}
	if err == nil {
		t.Fatal("started", s.Close())
	}
	if !strings.Contains(err.Error(), "no-such-directive") {
		t.Error(err)
	}
}

// TestNothingLeft kills the owner of a server, with the server running and
// with the server frozen, and looks for what remains.
func TestNothingLeft(t *testing.T) {
	startRedis(t, nil) // skips without a server
	for _, frozen := range []bool{false, true} {
		t.Run(fmt.Sprintf("frozen=%v", frozen), func(t *testing.T) {
			owner, pid, watcherPid, dir := startOwner(t)
			if frozen {
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			if err := owner.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = owner.Wait() // "signal: killed"
			eventually(t, "the server is gone", func() bool { return !proc.Running(pid) })
			eventually(t, "the watcher is gone", func() bool { return !proc.Running(watcherPid) })
			left, err := filepath.Glob(dir + "*")
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

func startOwner(t *testing.T) (owner *exec.Cmd, pid, watcherPid int, dir string) {
	t.Helper()
	owner = exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &pid, &watcherPid, &dir); err != nil {
		t.Fatal(line, err)
	}
	return owner, pid, watcherPid, dir
}

func TestSweep(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	stale := filepath.Join(tmp, dirPrefix+"stale")
	if err := os.Mkdir(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stale, claimName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	orphan, err := start(stale, []string{"sleep", "60"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the orphan has entered itself", func() bool { _, err := readPid(orphan.pidFile); return err == nil })
	owned, claim, err := makeDir()
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Close()
	if _, err := os.Stat(stale); err != nil {
		t.Error("swept a directory that may just be in the making:", err)
	}
	old := time.Now().Add(-time.Minute)
	for _, dir := range []string{stale, owned} {
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	sweep(tmp)
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Error("the stale directory is still there:", err)
	}
	if _, err := os.Stat(owned); err != nil {
		t.Error("swept a directory with an owner:", err)
	}
	select {
	case <-orphan.ended:
	case <-time.After(timeout):
		t.Error("the orphan lives", orphan.kill())
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}
