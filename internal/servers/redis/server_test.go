package redis

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/servers"
)

// timeout bounds what a test waits for on a machine that is busy.
const timeout = 30 * time.Second

// startRedis skips when there is no server, unless LOCKBENCH_REQUIRE names it.
func startRedis(t *testing.T, o *Options) *servers.Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	servers.Keep(t, "redis", s, err)
	return s
}

// ask sends inline commands and returns one line of reply for each.
func ask(t *testing.T, s *servers.Server, commands ...string) []string {
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
			s := startRedis(t, &Options{AppendFsync: fsync})
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
	s := startRedis(t, &Options{Password: `pa"ss word`})
	got := ask(t, s, "GET a", `AUTH "pa\"ss word"`)
	if !strings.HasPrefix(got[0], "-NOAUTH") || got[1] != "+OK" {
		t.Error(got)
	}
}

func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Start(t.Context(), nil)
	if !errors.Is(err, servers.ErrNotInstalled) {
		t.Fatal(err)
	}
	for _, want := range []string{"apt-get install redis-server", "brew install redis"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestBadConfigurationSaysWhy(t *testing.T) {
	s, err := Start(t.Context(), &Options{Lines: []string{"no-such-directive yes"}})
	if errors.Is(err, servers.ErrNotInstalled) {
		servers.Missing(t, "redis", err)
	}
	if err == nil {
		t.Fatal("started", s.Close())
	}
	if !strings.Contains(err.Error(), "no-such-directive") {
		t.Error(err)
	}
}
