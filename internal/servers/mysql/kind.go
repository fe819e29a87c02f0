// Package mysql starts MariaDB or MySQL servers, and changes or breaks them as
// operators do.
package mysql

import (
	"context"
	"fmt"
	"os"
	"regexp"

	"github.com/lockbench/lockbench/internal/servers"
)

var Kind = &servers.Kind{
	Name:     "mysql",
	Lacks:    servers.OneSQLServer,
	Settings: []servers.Setting{{Name: servers.Plain, Servers: 1}, {Name: servers.WithReplica, Servers: 1, Copied: true}},

	Synced:     []string{"innodb_flush_log_at_trx_commit=1", "sync_binlog=1"},
	Prepare:    prepare,
	Operations: append(operations, failovers...),
	Launch: func(ctx context.Context, _ bool) (servers.Nodes, error) {
		s, err := Start(ctx, nil)
		return servers.Nodes{s}, err
	},
	Services: []string{"mysql"},
	Address:  func(at []string) string { return At(at[0]) },
	HostIn:   regexp.MustCompile(`@tcp\(([^()]*)\)`), // in the format of go-sql-driver/mysql
	Counter:  count,
	Remove:   remove,
	Program:  Program,
}

func prepare(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	if err := e.Account(ctx, w); err != nil {
		return err
	}
	server, err := start(ctx, e, w)
	if err != nil {
		return err
	}
	e.Servers = servers.Nodes{server}
	if e.Login = servers.HostUser; e.PasswordFile == "" {
		e.Login += ":" + servers.HostPassword
	}
	s, err := newStore(ctx, e)
	if err != nil {
		return err
	}
	e.Product = s
	if w.Setting == servers.WithReplica {
		return s.startReplica(ctx, w)
	}
	return nil
}

// start starts a server. With the setting WithReplica, the server can become master or replica.
func start(ctx context.Context, e *servers.Environment, w servers.Requirements) (*servers.Server, error) {
	wrap, err := e.StartClock(ctx, w)
	if err != nil {
		return nil, err
	}
	o := &Options{Wrap: wrap, SQL: plainUser}
	if w.Setting == servers.WithReplica {
		if os.Getenv("LOCKBENCH_MYSQLD") != "" { // MySQL has other statements for replication
			return nil, &servers.NotInstalledError{Program: "mariadbd", Debian: "mariadb-server", Homebrew: "mariadb"}
		}
		o.Args = []string{"--log-bin", fmt.Sprintf("--server-id=%d", 1+len(e.Servers))}
	}
	return Start(ctx, o)
}

// plainUser has the statements that make the hosts' account. Unlike the server's first account,
// this account may not write while the server is read-only.
var plainUser = []string{
	"DROP USER IF EXISTS " + sqlUser,
	"CREATE USER " + sqlUser + " IDENTIFIED BY '" + servers.HostPassword + "'",
	"GRANT ALL ON lockbench.* TO " + sqlUser,
	"GRANT PROCESS ON *.* TO " + sqlUser,
}

const sqlUser = "'" + servers.HostUser + "'@'%'"
