package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/conform"
	"github.com/lockbench/lockbench/internal/servers"
	postgresserver "github.com/lockbench/lockbench/internal/servers/postgres"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/postgres"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// shared is the server of all tests that do not start their own.
var shared struct {
	once   sync.Once
	server *servers.Server
	err    error
}

// server returns the shared server, and starts it if necessary. If PostgreSQL is not installed,
// server skips the test, or fails it if LOCKBENCH_REQUIRE names postgres.
func server(t *testing.T) *servers.Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = postgresserver.Start(context.Background(), nil) })
	if shared.err != nil {
		servers.Missing(t, "postgres", shared.err)
	}
	return shared.server
}

func own(t *testing.T, o *postgresserver.Options) *servers.Server {
	t.Helper()
	s, err := postgresserver.Start(t.Context(), o)
	servers.Keep(t, "postgres", s, err)
	return s
}

var (
	must       = backendtest.Must
	eventually = backendtest.Eventually
	acquire    = backendtest.Acquire
	held       = backendtest.Held
)

func fresh() string { return strings.ToLower(rand.Text()) }

func open(t drivertest.T, o postgres.Options) *postgres.Backend {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	b, err := postgres.Open(&o)
	must(t, err)
	return backendtest.CloseAfter(t, b)
}

func connect(t drivertest.T, s *servers.Server) *pgx.Conn {
	t.Helper()
	c, err := postgresserver.Dial(t.Context(), driver.Config{"address": postgresserver.Address(s)})
	must(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // the server may be gone
	return c
}

func denied(s *servers.Server) string {
	return servers.LoginTo(postgresserver.Address(s), "postgres://lockbench:secret")
}

// leftovers returns the held locks and queue entries that a test has left. Free rows do not count,
// because they stay for a day, to keep the last token.
func leftovers(t drivertest.T, s *servers.Server, prefix string) []string {
	t.Helper()
	rows, err := connect(t, s).Query(t.Context(), `SELECT 'held by ' || owner || ': ' || encode(name, 'escape') FROM lockbench.locks
		WHERE starts_with(encode(name, 'escape'), $1) AND owner <> '' AND ends > clock_timestamp()
		UNION ALL SELECT 'waited for by ' || owner || ': ' || encode(name, 'escape') FROM lockbench.waiters WHERE starts_with(encode(name, 'escape'), $1)`, prefix+"/")
	must(t, err)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	var said *pgconn.PgError
	if errors.As(err, &said) && said.Code == "42P01" {
		return nil // the server has no table yet
	}
	must(t, err)
	return left
}

func TestConformanceInProcess(t *testing.T) {
	backendtest.Long(t)
	s := server(t)
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		here, there := fresh(), fresh()
		opener := func(address, prefix string) func(drivertest.T) driver.Backend {
			return func(t drivertest.T) driver.Backend {
				return open(t, postgres.Options{Address: address, Prefix: prefix})
			}
		}
		address := postgresserver.Address(s)
		return &drivertest.Harness{
			Open: opener(address, here), Other: opener(address, there), Denied: opener(denied(s), here), InProcess: true,
			Store: conform.Store(nil, s), Leftovers: func(t drivertest.T) []string { return leftovers(t, s, here) },
		}
	})
}

func TestConformance(t *testing.T) {
	s := server(t)
	binary := plugintest.Build(t, "./lockplugin-postgres")
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		here := fresh()
		on := func(address string) *drivertest.Harness {
			return plugintest.Binary(binary, func(drivertest.T) driver.Config {
				return driver.Config{"address": address, "prefix": here}
			})(t)
		}
		h := on(postgresserver.Address(s))
		h.Denied = on(denied(s)).Open
		h.Store, h.Leftovers = conform.Store(nil, s), func(t drivertest.T) []string { return leftovers(t, s, here) }
		return h
	})
}
