package kinds_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/etcd"
	"github.com/lockbench/lockbench/internal/servers/kinds"
	"github.com/lockbench/lockbench/internal/servers/mysql"
)

const (
	module = "github.com/lockbench/lockbench/"
	served = 20 * time.Second
)

func TestMain(m *testing.M) { plugintest.Main(m) }

func openSetting(t *testing.T, backend, setting string) (*servers.Environment, []*inject.Proxy) {
	t.Helper()
	w := servers.Requirements{Setting: setting, TTL: 2 * time.Second, Dir: t.TempDir()}
	w.Plugin = plugintest.Build(t, module+"plugins/"+backend+"/lockplugin-"+backend)
	if kinds.Of(backend).Has(servers.CapClock) {
		w.Needs = []servers.Capability{servers.CapClock}
	}
	e, err := kinds.Of(backend).Open(t.Context(), w)
	servers.Keep(t, backend, e, err)
	paths, err := e.AddPaths()
	if err != nil {
		t.Fatal(err)
	}
	return e, paths
}

func during(t *testing.T, e *servers.Environment, backend, name string, look func()) {
	t.Helper()
	all := kinds.Of(backend).Operations
	i := slices.IndexFunc(all, func(o servers.Operation) bool { return o.Name == name })
	if i < 0 {
		t.Fatalf("%s has no operation %s", backend, name)
	}
	if err := all[i].Do(t.Context(), e, 0); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	look()
	if err := all[i].Undo(t.Context(), e, 0); err != nil {
		t.Errorf("undo %s: %v", name, err)
	}
}

// TestRedisLeadsElsewhere checks three operations. After "repoint" an old connection leads to a
// replica, and a new connection to the new master. After "two-masters" new connections lead to two
// masters in turn. After "subscribe" hosts may not subscribe.
func TestRedisLeadsElsewhere(t *testing.T) {
	e, paths := openSetting(t, "redis", servers.WithReplica)
	connect := func() *redis.Client {
		cfg := e.ConfigOf(paths)
		c := redis.NewClient(&redis.Options{Addr: cfg["address"], Username: "recorder", Password: "recorder-password", PoolSize: 1})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	at := func(c *redis.Client) string {
		info, err := c.InfoMap(t.Context(), "replication", "server").Result()
		if err != nil {
			t.Fatal(err)
		}
		return info["Replication"]["role"] + " " + info["Server"]["tcp_port"]
	}
	stays := connect()
	first := at(stays)
	during(t, e, "redis", "repoint", func() {
		if old, young := at(stays), at(connect()); old != "slave"+first[len("master"):] || young == first || young[:6] != "master" {
			t.Errorf("a connection to %s leads to %s, a new one to %s", first, old, young)
		}
	})
	if young := at(connect()); young != first {
		t.Errorf("led back to %s, not %s", young, first)
	}
	during(t, e, "redis", "two-masters", func() {
		if one, two := at(connect()), at(connect()); one != first || two == first || two[:6] != "master" {
			t.Errorf("new connections lead to %s and %s", one, two)
		}
	})
	during(t, e, "redis", "subscribe", func() {
		if _, err := connect().Subscribe(t.Context(), "x").Receive(t.Context()); err == nil {
			t.Error("a host may subscribe")
		}
	})
}

// TestSQLLeadsElsewhere checks that MariaDB's failovers lead new connections to the replica. In one
// failover the replica's clock is ahead. The operation "gap-locks" must lock the gaps between rows.
func TestSQLLeadsElsewhere(t *testing.T) {
	e, paths := openSetting(t, "mysql", servers.WithReplica)
	connect := func() *sql.DB {
		cfg := e.ConfigOf(paths)
		db, err := mysql.Dial(driver.Config{"address": cfg["address"], "username": "recorder", "password": "recorder-password"})
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	at := func(db *sql.DB) (who string, ahead time.Duration) {
		var now time.Time
		var text string
		if err := db.QueryRowContext(t.Context(), "SELECT CONCAT(@@server_id, ' ', IF(@@read_only IN ('0', 'OFF'), 0, 1)), UTC_TIMESTAMP(6)").Scan(&who, &text); err != nil {
			t.Fatal(err)
		}
		now, err := time.Parse("2006-01-02 15:04:05.000000", text)
		if err != nil {
			t.Fatal(err)
		}
		return who, time.Until(now)
	}
	stays := connect()
	if who, _ := at(stays); who != "1 0" {
		t.Fatalf("hosts are led to %s", who)
	}
	during(t, e, "mysql", "repoint", func() {
		old, _ := at(stays)
		young, _ := at(connect())
		if old != "1 1" || young != "2 0" {
			t.Errorf("an old connection leads to %s, a new one to %s", old, young)
		}
	})
	during(t, e, "mysql", "failover-ahead", func() {
		if who, ahead := at(connect()); who != "2 0" || ahead < 2*time.Second {
			t.Errorf("hosts are led to %s, which is %v ahead", who, ahead)
		}
	})
	db := connect()
	exec := func(statement string) error {
		_, err := db.ExecContext(t.Context(), statement)
		return err
	}
	if err := exec("CREATE TABLE lockbench_locks (name VARBINARY(512) PRIMARY KEY, expires_at DATETIME(6))"); err != nil {
		t.Fatal(err)
	}
	if err := exec("INSERT INTO lockbench_locks VALUES ('a', UTC_TIMESTAMP(6)), ('c', UTC_TIMESTAMP(6))"); err != nil {
		t.Fatal(err)
	}
	during(t, e, "mysql", "gap-locks", func() {
		if err := exec("SET innodb_lock_wait_timeout = 1"); err != nil {
			t.Fatal(err)
		}
		if exec("INSERT INTO lockbench_locks VALUES ('b', UTC_TIMESTAMP(6))") == nil {
			t.Error("a row came into a gap that is locked")
		}
		if err := exec("UPDATE lockbench_locks SET expires_at = UTC_TIMESTAMP(6)"); err != nil {
			t.Errorf("a row beside a gap is locked: %v", err)
		}
	})
}

// TestEtcdLeadsElsewhere checks two things. With the setting Balanced, one address leads to three
// members in turn. After "stray", one of three addresses leads to another cluster.
func TestEtcdLeadsElsewhere(t *testing.T) {
	for setting, want := range map[string]int{etcd.Three: 1, etcd.Balanced: 3} {
		e, paths := openSetting(t, "etcd", setting)
		ask := func() (cluster, member string) {
			c, err := clientv3.New(clientv3.Config{Endpoints: []string{paths[0].Addr()}, Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), served)
			defer cancel()
			status, err := c.Status(ctx, paths[0].Addr())
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(status.Header.ClusterId), fmt.Sprint(status.Header.MemberId)
		}
		members := map[string]bool{}
		cluster, _ := ask()
		for range 6 {
			_, member := ask()
			members[member] = true
		}
		if len(members) != want {
			t.Errorf("%s: the first path leads to %d members, not %d", setting, len(members), want)
		}
		if setting == etcd.Three {
			during(t, e, "etcd", "stray", func() {
				if other, _ := ask(); other == cluster {
					t.Error("the path leads to the same cluster")
				}
			})
		}
	}
}
