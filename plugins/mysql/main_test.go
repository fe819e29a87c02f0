package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/conform"
	"github.com/lockbench/lockbench/internal/servers"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/mysql"
)

// foreign is the environment variable with the address of a running MySQL or MariaDB server. If it
// is set, the tests use this server in place of the shared one, and skip cases that must stop the
// server. The account in the address needs all rights in its database.
const foreign = "LOCKBENCH_TEST_MYSQL"

// The shared server ends when this process ends.
func TestMain(m *testing.M) { plugintest.Main(m) }

// shared is the server of all tests that do not start their own.
var shared struct {
	once    sync.Once
	server  *servers.Server
	address string
	err     error
}

// address starts the shared server and returns its address. If no server is
// installed, it skips the test, or fails it if LOCKBENCH_REQUIRE names mysql.
func address(t *testing.T) string {
	t.Helper()
	shared.once.Do(func() {
		if shared.address = os.Getenv(foreign); shared.address != "" {
			return
		}
		if shared.server, shared.err = mysqlserver.Start(context.Background(), nil); shared.err == nil {
			shared.address = mysqlserver.Address(shared.server)
		}
	})
	require(t, shared.err)
	return shared.address
}

func require(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		servers.Missing(t, "mysql", err)
	}
}

func own(t *testing.T, o *mysqlserver.Options) *servers.Server {
	t.Helper()
	s, err := mysqlserver.Start(t.Context(), o)
	servers.Keep(t, "mysql", s, err)
	return s
}

var prefixes atomic.Int64

// fresh creates a table that is dropped when the test ends. If the first request created the table
// instead, it would take too long on MySQL for tests that measure time.
func fresh(t drivertest.T, address string) (prefix string) {
	t.Helper()
	prefix = fmt.Sprintf("t%d_%d_", os.Getpid(), prefixes.Add(1))
	if err := open(t, mysql.Options{Address: address, Prefix: prefix}).Check(t.Context()); err != nil {
		t.Fatalf("making the table: %v", err)
	}
	t.Cleanup(func() {
		db := connect(t, address)
		defer db.Close()
		if _, err := db.Exec("DROP TABLE IF EXISTS " + table(prefix)); err != nil {
			t.Logf("dropping the table: %v", err)
		}
	})
	return prefix
}

func table(prefix string) string { return "`" + prefix + "locks`" }

func open(t drivertest.T, o mysql.Options) *mysql.Backend {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	b, err := mysql.Open(&o)
	must(t, err)
	return backendtest.CloseAfter(t, b)
}

func connect(t drivertest.T, address string) *sql.DB {
	t.Helper()
	cfg, err := mysqldriver.ParseDSN(address)
	must(t, err)
	cfg.InterpolateParams, cfg.MultiStatements = true, true
	connector, err := mysqldriver.NewConnector(cfg)
	must(t, err)
	return sql.OpenDB(connector)
}

func denied(address string) string { return servers.LoginTo(address, "nobody:secret") }

// complete gives the conformance suite's harness h access to the server and its rows.
func complete(h *drivertest.Harness, address, prefix string) *drivertest.Harness {
	h.Cancels = number("LOCKBENCH_MYSQL_CANCELS", 0)
	h.Leftovers = func(t drivertest.T) []string { return leftovers(t, address, prefix) }
	if shared.server != nil {
		h.Store = conform.Store(nil, shared.server)
	}
	return h
}

func number(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return otherwise
}

// leftovers returns the rows of locks that a test has left held or with waiters. Free rows do not
// count, because they stay for a day, to keep tokens rising if the clock is turned back.
func leftovers(t drivertest.T, address, prefix string) (left []string) {
	t.Helper()
	db := connect(t, address)
	defer db.Close()
	rows, err := db.Query("SELECT name,owner,queue FROM " + table(prefix) + " WHERE owner<>'' AND expires_at>UTC_TIMESTAMP(6) OR queue<>''")
	var missing *mysqldriver.MySQLError
	if errors.As(err, &missing) && missing.Number == 1146 {
		return nil
	}
	if err != nil {
		t.Fatalf("looking for leftovers: %v", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, owner, queue string
		if err := rows.Scan(&name, &owner, &queue); err != nil {
			t.Fatalf("looking for leftovers: %v", err)
		}
		left = append(left, fmt.Sprintf("%q held by %q, queue %q", name, owner, queue))
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("looking for leftovers: %v", err)
	}
	return left
}

func TestConformanceInProcess(t *testing.T) {
	backendtest.Long(t)
	address := address(t)
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		here, there := fresh(t, address), fresh(t, address)
		opener := func(address, prefix string) func(drivertest.T) driver.Backend {
			return func(t drivertest.T) driver.Backend {
				return open(t, mysql.Options{Address: address, Prefix: prefix})
			}
		}
		return complete(&drivertest.Harness{
			Open: opener(address, here), Other: opener(address, there), Denied: opener(denied(address), here), InProcess: true,
		}, address, here)
	})
}

func TestConformance(t *testing.T) {
	address := address(t)
	binary := plugintest.Build(t, "./lockplugin-mysql")
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		here := fresh(t, address)
		on := func(address string) *drivertest.Harness {
			return plugintest.Binary(binary, func(drivertest.T) driver.Config {
				return driver.Config{"address": address, "prefix": here}
			})(t)
		}
		h := on(address)
		h.Denied = on(denied(address)).Open
		return complete(h, address, here)
	})
}
