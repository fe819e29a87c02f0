package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/conform"
	"github.com/lockbench/lockbench/internal/servers"
	postgresserver "github.com/lockbench/lockbench/internal/servers/postgres"
	"github.com/lockbench/lockbench/plugins/postgres"
)

// pooler starts a pooler, which shares its connections to the server s among clients.
func pooler(t *testing.T, s *servers.Server) (address string) {
	t.Helper()
	p, err := postgresserver.StartPooler(t.Context(), s)
	servers.Keep(t, "pgbouncer", p, err)
	return postgresserver.Address(p)
}

// TestConformanceBehindPooler runs the conformance suite behind a pooler in transaction
// mode. Waiters poll, because the pooler loses notices. The pooler keeps requests while
// the server is down, so the backend notices an outage only after request_timeout.
func TestConformanceBehindPooler(t *testing.T) {
	address := pooler(t, server(t))
	binary := plugintest.Build(t, "./lockplugin-postgres")
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		here, there := fresh(), fresh()
		config := func(prefix string) func(drivertest.T) driver.Config {
			return func(drivertest.T) driver.Config {
				return driver.Config{"address": address, "listen_address": "none", "prefix": prefix, "request_timeout": "1s"}
			}
		}
		h := plugintest.Binary(binary, config(here))(t)
		h.Other = plugintest.Binary(binary, config(there))(t).Open
		h.Store = conform.Store(nil, shared.server)
		h.Leftovers = func(t drivertest.T) []string { return leftovers(t, shared.server, here) }
		return h
	})
}

// TestCheckBehindPooler checks that Check returns an error if a pooler loses
// notices, unless listen_address is none or leads directly to the server.
func TestCheckBehindPooler(t *testing.T) {
	address := pooler(t, server(t))
	err := open(t, postgres.Options{Address: address, Prefix: fresh()}).Check(t.Context())
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "listen_address") {
		t.Errorf("through the pooler alone: %v", err)
	}
	for _, listen := range []string{"none", postgresserver.Address(shared.server)} {
		must(t, open(t, postgres.Options{Address: address, ListenAddress: listen, Prefix: fresh()}).Check(t.Context()))
	}
}
