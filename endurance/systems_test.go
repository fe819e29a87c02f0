package endurance_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

var systems = []system{
	{name: "redis", start: startRedis, left: redisKeys},
	{name: "redlock", start: startRedlock, left: nodeKeys},
	{name: "mysql", start: startMariaDB, left: mariaRows},
	{name: "etcd", start: startEtcd, left: etcdKeys},
}

func optionsOf(binary string, cfg driver.Config) *plugin.Options {
	return &plugin.Options{Path: binary, Config: cfg}
}

func startRedis(t testing.TB) driver.Config {
	s, err := redisserver.Start(t.Context(), nil)
	return driver.Config{"address": keep(t, "redis", s, err).Addr(), "prefix": "endurance:"}
}

// startRedlock gives five nodes on two cores more time than a node needs.
func startRedlock(t testing.TB) driver.Config {
	nodes, err := redisserver.StartNodes(t.Context(), 5, nil)
	servers.Keep(t, "redis", nodes, err)
	if err := servers.Init(t.Context(), plugintest.Build(t, "../plugins/redlock/lockplugin-redlock"), "address="+nodes.Addr()); err != nil {
		t.Fatal(err)
	}
	return driver.Config{"address": nodes.Addr(), "prefix": "endurance:", "node_timeout": "200ms"}
}

// nodeKeys are redisKeys of every node, when the minority has had the time to
// follow.
func nodeKeys(t *testing.T, cfg driver.Config) []string {
	t.Helper()
	var left []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		left = nil
		for addr := range strings.SplitSeq(cfg["address"], ",") {
			left = append(left, redisKeys(t, driver.Config{"address": addr, "prefix": cfg["prefix"]})...)
		}
		if len(left) == 0 {
			break
		}
	}
	return left
}

func startMariaDB(t testing.TB) driver.Config {
	s, err := mysqlserver.Start(t.Context(), nil)
	return driver.Config{"address": mysqlserver.Address(keep(t, "mysql", s, err)), "prefix": "endurance_"}
}

// mariaRows are the rows that are held or waited for. A free row keeps its
// token for a day.
func mariaRows(t *testing.T, cfg driver.Config) []string {
	t.Helper()
	db, err := sql.Open("mysql", cfg["address"])
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT name FROM `"+cfg["prefix"]+"locks` WHERE owner<>'' AND expires_at>UTC_TIMESTAMP(6) OR queue<>''")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var left []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		left = append(left, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return left
}

// redisKeys are the keys that outlive two minutes, but for the one control key
// of the prefix, and the one marker of a node of redlock.
func redisKeys(t *testing.T, cfg driver.Config) []string {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: cfg["address"]})
	defer c.Close()
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, k := range keys {
		ttl, err := c.PTTL(t.Context(), k).Result()
		if err != nil {
			t.Fatal(err)
		}
		if k != cfg["prefix"]+"~s:{}" && k != "~redlock" && (ttl < 0 || ttl > 2*time.Minute) {
			left = append(left, fmt.Sprintf("%q for %v", k, ttl))
		}
	}
	return left
}
