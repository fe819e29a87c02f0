package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	postgresserver "github.com/lockbench/lockbench/internal/servers/postgres"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// contents starts a server and writes a user's data to it. The returned function list reads all
// data on the server.
func contents(t *testing.T, backend string) (address string, list func() []string) {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	switch backend {
	case "redis":
		s := redisServer(t, nil)
		c, err := redisserver.Dial(driver.Config{"address": s.Addr()})
		fail(err)
		t.Cleanup(func() { _ = c.Close() })
		fail(c.Set(t.Context(), "theirs", "x", 0).Err())
		return s.Addr(), func() []string {
			keys, err := c.Keys(context.WithoutCancel(t.Context()), "*").Result()
			fail(err)
			return keys
		}
	case "mysql":
		s, err := mysqlserver.Start(t.Context(), nil)
		servers.Keep(t, "mysql", s, err)
		db, err := mysqlserver.Dial(driver.Config{"address": mysqlserver.Address(s)})
		fail(err)
		t.Cleanup(func() { _ = db.Close() })
		_, err = db.Exec("CREATE TABLE theirs (x INT)")
		fail(err)
		return mysqlserver.Address(s), func() (tables []string) {
			rows, err := db.Query("SHOW TABLES")
			fail(err)
			defer rows.Close()
			for rows.Next() {
				var table string
				fail(rows.Scan(&table))
				tables = append(tables, table)
			}
			return tables
		}
	}
	if backend == "postgres" {
		s, err := postgresserver.Start(t.Context(), nil)
		servers.Keep(t, "postgres", s, err)
		pool, err := postgresserver.Pool(driver.Config{"address": postgresserver.Address(s)})
		fail(err)
		t.Cleanup(pool.Close)
		_, err = pool.Exec(t.Context(), "CREATE TABLE theirs (x int)")
		fail(err)
		return postgresserver.Address(s), func() []string {
			rows, err := pool.Query(context.WithoutCancel(t.Context()), "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"+
				" UNION ALL SELECT encode(name, 'escape') FROM lockbench.locks UNION ALL SELECT encode(name, 'escape') FROM lockbench.waiters")
			fail(err)
			left, err := pgx.CollectRows(rows, pgx.RowTo[string])
			fail(err)
			return left
		}
	}
	s, err := etcdserver.Start(t.Context(), nil)
	servers.Keep(t, "etcd", s, err)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop()})
	fail(err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Put(t.Context(), "theirs", "x")
	fail(err)
	return s.Addr(), func() (keys []string) {
		all, err := c.Get(context.WithoutCancel(t.Context()), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		fail(err)
		for _, kv := range all.Kvs {
			keys = append(keys, string(kv.Key))
		}
		return keys
	}
}

// "lockbench run" and "lockbench conform" must leave a user's server clean, even if interrupted.
func TestTargetsAreLeftClean(t *testing.T) {
	dir := t.TempDir() // a directory for this test, because other tests measure all plugins in theirs
	for _, name := range []string{"redis", "mysql", "postgres", "etcd"} {
		build := exec.Command("go", "build", "-o", dir+"/", "github.com/lockbench/lockbench/plugins/"+name+"/lockplugin-"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, backend := range []string{"redis", "mysql", "postgres", "etcd"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			address, list := contents(t, backend)
			file := filepath.Join(t.TempDir(), "target")
			if err := os.WriteFile(file, []byte(address), 0o600); err != nil {
				t.Fatal(err)
			}
			target := []string{"--target", backend + "=@" + file, "--plugin-dir", dir}
			clean := func(after string) {
				t.Helper()
				if left := list(); !slices.Equal(left, []string{"theirs"}) {
					t.Errorf("after %s: %q", after, left)
				}
			}
			measure := append([]string{"run", "--quick", "--runs", "1", "--backends", backend, "--clients", "1", "--scenarios", "acquire"}, target...)
			ends(t, exitOK, "", append(measure, "--baselines", "-o", filepath.Join(t.TempDir(), "out"))...)
			clean("run")
			for _, command := range [][]string{
				append(measure, "--measure", "10m", "-o", filepath.Join(t.TempDir(), "out")),
				append([]string{"conform", backend}, target...),
			} {
				ctx, interrupt := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				var out strings.Builder
				go func() { ended <- run(ctx, command, &out, &out) }()
				// Wait until lockbench has written something to the server.
				for deadline := time.Now().Add(time.Minute); len(list()) < 2 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				}
				interrupt()
				if err := <-ended; exitCode(err) != exitInterrupted {
					t.Errorf("%s: %v: %s", command[0], err, out.String())
				}
				clean("an interrupted " + command[0])
			}
		})
	}
}
