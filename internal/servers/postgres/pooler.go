package postgres

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

var pgbouncer = servers.Wanted{Name: "pgbouncer", Debian: "pgbouncer", Homebrew: "pgbouncer", After: []string{"/usr/sbin"}}

// StartPooler starts the connection pooler PgBouncer in transaction mode in front of the
// server s. In this mode, a connection to s may serve another client after each transaction.
// PgBouncer logs in to s with the account of [Start], whatever account a client uses.
func StartPooler(ctx context.Context, s *servers.Server) (*servers.Server, error) {
	program, err := pgbouncer.Find()
	if err != nil {
		return nil, err
	}
	account, err := accountOf()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		return nil, err
	}
	return servers.Launch(ctx, servers.Recipe{
		Product: "pgbouncer",
		Prepare: func(dir string, own int, _ bool) ([]string, error) {
			file := filepath.Join(dir, "pgbouncer.ini")
			text := fmt.Sprintf("[databases]\n%s = host=%s port=%s user=%s password=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
				"unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 20\nmax_client_conn = 500\nserver_login_retry = 1\n",
				database, host, port, superuser, password, own)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				return nil, err
			}
			return slices.Concat(account.as(), []string{program, file}), account.give(dir, file)
		},
		Ready: func(ctx context.Context, addr string) error {
			c, err := Dial(ctx, driver.Config{"address": At(addr)})
			if err != nil {
				return err
			}
			return c.Close(ctx)
		},
	})
}
