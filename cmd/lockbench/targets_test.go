package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// hush is a password that must never be seen.
const hush = "hush-hush"

// mysqlTargets returns addresses of a server by what is wrong with them.
func mysqlTargets(t *testing.T) map[string]string {
	t.Helper()
	s, err := mysqlserver.Start(t.Context(), &mysqlserver.Options{SQL: []string{
		"CREATE USER IF NOT EXISTS 'reader'@'%' IDENTIFIED BY '" + hush + "'",
		"GRANT SELECT ON lockbench.* TO 'reader'@'%'",
	}})
	servers.Keep(t, "mysql", s, err)
	readOnly, err := mysqlserver.Start(t.Context(), &mysqlserver.Options{SQL: []string{
		"CREATE USER IF NOT EXISTS 'app'@'%' IDENTIFIED BY '" + hush + "'",
		"GRANT SELECT,INSERT,UPDATE,DELETE,CREATE ON lockbench.* TO 'app'@'%'",
		"SET GLOBAL read_only=1",
	}})
	servers.Keep(t, "mysql", readOnly, err)
	at := func(user, address, database string) string {
		return fmt.Sprintf("%s:%s@tcp(%s)/%s", user, hush, address, database)
	}
	return map[string]string{
		"wrong password": at("lockbench", s.Addr(), "lockbench"),
		"wrong database": strings.Replace(mysqlserver.Address(s), "/lockbench", "/elsewhere", 1),
		"missing rights": at("reader", s.Addr(), "lockbench"),
		"read-only":      at("app", readOnly.Addr(), "lockbench"),
		"down":           at("app", "127.0.0.1:1", "lockbench"),
		"TLS":            at("reader", s.Addr(), "lockbench"),
	}
}

// etcdUsers starts a server that asks for a user.
func etcdUsers(t *testing.T) string {
	t.Helper()
	s, err := etcdserver.Start(t.Context(), nil)
	servers.Keep(t, "etcd", s, err)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	_, err = c.UserAdd(ctx, "root", hush)
	if err == nil {
		_, err = c.UserGrantRole(ctx, "root", "root")
	}
	if err == nil {
		_, err = c.AuthEnable(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.Addr()
}

// What lockbench says of servers that it cannot use.
func TestUnusableTargets(t *testing.T) {
	dir := ""
	for _, name := range []string{"redlock", "mysql", "etcd"} {
		dir = filepath.Dir(plugintest.Build(t, "github.com/lockbench/lockbench/plugins/"+name+"/lockplugin-"+name))
	}
	db := mysqlTargets(t)
	users := etcdUsers(t)
	plain, err := etcdserver.Start(t.Context(), nil)
	servers.Keep(t, "etcd", plain, err)
	nodes, err := redisserver.StartNodes(t.Context(), 3, nil)
	servers.Keep(t, "redis", nodes, err)
	evicting, err := redisserver.StartNodes(t.Context(), 3, &redisserver.Options{Args: []string{"--maxmemory-policy", "allkeys-lru"}})
	servers.Keep(t, "redis", evicting, err)
	locked, err := redisserver.StartNodes(t.Context(), 3, &redisserver.Options{Password: "right"})
	servers.Keep(t, "redis", locked, err)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never says a word
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	deaf := silent.Addr().String()
	t.Chdir(t.TempDir()) // not before the servers were found

	for _, tt := range []struct {
		name, backend, target string
		args, want            []string
	}{
		{"wrong password", "mysql", db["wrong password"], nil, []string{"Access denied"}},
		{"wrong database", "mysql", db["wrong database"], nil, []string{"elsewhere"}},
		{"missing rights", "mysql", db["missing rights"], nil, []string{"denied"}},
		{"read-only server", "mysql", db["read-only"], nil, []string{"read-only"}},
		{"down", "mysql", db["down"], nil, []string{"127.0.0.1:1", "refused"}},
		{"TLS to a plain port", "mysql", db["TLS"], []string{"--config", "mysql.tls_enabled=true"}, []string{"TLS"}},

		{"no user", "etcd", users, nil, []string{"username and password"}},
		{"wrong password", "etcd", users, []string{"--config", "etcd.username=root", "--config", "etcd.password=env:HUSH"}, []string{"username and password"}},
		{"down", "etcd", "127.0.0.1:1", nil, []string{"127.0.0.1:1", "refused"}},
		{"silent", "etcd", deaf, nil, []string{deaf}},
		{"TLS to a plain port", "etcd", "https://" + plain.Addr(), nil, []string{"TLS"}},

		{"unreachable", "redlock", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", nil, []string{"127.0.0.1:1", "0 of 3"}},
		{"a node twice", "redlock", nodes[0].Addr() + "," + nodes[1].Addr() + "," + nodes[0].Addr(), nil, []string{nodes[0].Addr()}},
		{"even", "redlock", nodes.Addr() + ",127.0.0.1:1", nil, []string{"even number"}},
		{"wrong password", "redlock", locked.Addr(), []string{"--config", "redlock.password=env:HUSH"}, []string{"password"}},
		{"evicting", "redlock", evicting.Addr(), nil, []string{"allkeys-lru"}},
		{"TLS to a plain port", "redlock", nodes.Addr(), []string{"--config", "redlock.tls_enabled=true"}, []string{"0 of 3"}},
	} {
		t.Run(tt.backend+"/"+tt.name, func(t *testing.T) {
			t.Setenv("HUSH", hush)
			t.Setenv("TARGET", tt.target)
			code, stdout, stderr := promptly(t, append([]string{"run", "--quick", "--backends", tt.backend,
				"--target", tt.backend + "=env:TARGET", "--plugin-dir", dir}, tt.args...)...)
			if code != exitEnvironment || stdout != "" {
				t.Errorf("exit %d, stdout %q", code, stdout)
			}
			for _, want := range append(tt.want, tt.backend) {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q does not say %q", stderr, want)
				}
			}
			if strings.Contains(stderr, hush) {
				t.Errorf("the password is shown: %q", stderr)
			}
		})
	}
	t.Run("etcd/TTL between two steps", func(t *testing.T) {
		code, _, stderr := lockbench(t, "run", "--quick", "--backends", "etcd", "--target", "etcd="+plain.Addr(), "--ttl", "1.5s", "--plugin-dir", dir)
		if code != exitUsage || !strings.Contains(stderr, "1.5s") {
			t.Errorf("exit %d: %s", code, stderr)
		}
	})
}
