package servers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/redis"
)

func ask(ctx context.Context, cfg driver.Config, line string) (string, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", strings.TrimPrefix(cfg["url"], "store://"))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	fmt.Fprintf(conn, "%s\r\n", line)
	reply, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(reply), err
}

// TestStranger crashes a server that a command has started, and restarts the server with and
// without its data. Route must put a proxy's address in place of the server's address.
func TestStranger(t *testing.T) {
	if p := redis.Program(); p.Err != nil {
		servers.Missing(t, "redis", p.Err)
	}
	opened, ended := 0, 0
	k := servers.Stranger{
		Line: `test -z "$(ls)" || echo again; redis-server --port {port} --dir {dir} --bind 127.0.0.1 --save "" --appendonly yes --appendfsync always`,
		Keys: driver.Config{"url": "store://127.0.0.1:{port}", "ca": "{dir}/ca.pem"},
		Open: func(_ context.Context, cfg driver.Config) (func(context.Context) error, func() error, error) {
			opened++
			return func(ctx context.Context) error {
				if reply, err := ask(ctx, cfg, "PING"); err != nil || reply != "+PONG" {
					return errors.Join(err, errors.New(reply))
				}
				return nil
			}, func() error { ended++; return nil }, nil
		},
	}.Kind("stranger")
	e, err := k.Open(t.Context(), servers.Requirements{Dir: t.TempDir()})
	t.Cleanup(func() {
		if opened != 1 || ended != 1 {
			t.Errorf("the server was asked by %d plugins, %d of which were ended", opened, ended)
		}
	})
	servers.Keep(t, "stranger", e, err)
	paths, err := e.AddPaths()
	if err != nil {
		t.Fatal(err)
	}
	cfg := e.ConfigOf(paths)
	if cfg["url"] != "store://"+paths[0].Addr() || !strings.HasSuffix(cfg["ca"], "/data/ca.pem") {
		t.Errorf("hosts have %v", cfg)
	}
	says := func(line, want string) {
		t.Helper()
		if reply, err := ask(t.Context(), cfg, line); err != nil || reply != want {
			t.Errorf("%s: %q, %v, want %q", line, reply, err, want)
		}
	}
	again := func(keepData bool) {
		t.Helper()
		if err := errors.Join(e.Servers[0].Stop(), e.Servers[0].Start(t.Context(), keepData)); err != nil {
			t.Fatal(err)
		}
	}
	says("SETNX lock holder", ":1")
	again(true)
	says("SETNX lock rival", ":0")
	again(false)
	says("SETNX lock rival", ":1")
	if err := e.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	routed := driver.Config{"url": cfg["url"], "user": "me"}
	ok, err := k.Route(routed, func(address string) (string, error) { return "127.0.0.1:7", nil })
	if !ok || err != nil || routed["url"] != "store://127.0.0.1:7" || routed["user"] != "me" {
		t.Errorf("routed to %v, %v, %v", routed, ok, err)
	}
}

func answers(context.Context, driver.Config) (func(context.Context) error, func() error, error) {
	return func(context.Context) error { return nil }, func() error { return nil }, nil
}

func isDown(context.Context, driver.Config) (func(context.Context) error, func() error, error) {
	return func(context.Context) error { return errors.New("it is down") }, func() error { return nil }, nil
}

// TestStrangerDoesNotStart checks that the error quotes the output of a command that failed.
func TestStrangerDoesNotStart(t *testing.T) {
	for line, want := range map[string]string{
		"echo no such option {port}; exit 3": "ended by itself (exit status 3): no such option",
		"no-such-server {port}":              "no-such-server",
	} {
		_, err := servers.Stranger{Line: line, Open: isDown}.Kind("stranger").Start(t.Context(), "", false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestStrangerOfFiles checks that a store without a server is a directory that all hosts share.
// Such a store has no server that a fault could stop.
func TestStrangerOfFiles(t *testing.T) {
	k := servers.Stranger{
		Keys: driver.Config{"path": "{dir}/locks.db"},
		Open: answers,
	}.Kind("files")
	if k.InHost() || !k.Has(servers.CapShared) || k.Has(servers.CapServers) {
		t.Error("hosts do not share it, or it has a server")
	}
	e, err := k.Start(t.Context(), "", true)
	servers.Keep(t, "files", e, err)
	if len(e.Servers) > 0 || !strings.HasPrefix(e.Config["path"], "/") || !strings.HasSuffix(e.Config["path"], "/locks.db") {
		t.Errorf("%d servers, %v", len(e.Servers), e.Config)
	}
}
