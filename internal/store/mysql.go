package store

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/fault"
)

// mysqlKind is one server of MariaDB or MySQL.
var mysqlKind = &Store{
	Name: "mysql",
	Lacks: map[fault.Capability]string{
		fault.CapMinority: "one server has no minority",
		fault.CapLeader:   "one server has nobody to lead",
		fault.CapVotes:    "one server has no majority",
		fault.CapReplica:  "lockbench sets up no replica of a SQL server",
		fault.CapSentinel: "lockbench sets up no replica of a SQL server",
		fault.CapSlots:    "one server has all rows",
		fault.CapEvict:    "a SQL server deletes no rows by itself"},
	Settings: []Setting{{Name: Plain, Servers: 1}, {Name: WithReplica, Servers: 1, Copied: true}},
	Guard: &Guard{
		Kind: "sql", Open: openThingRows,
		Start: func(ctx context.Context) (*env.Server, error) {
			return env.StartMariaDB(ctx, &env.MariaDBOptions{Relaxed: true})
		},
	},

	open:       startMySQL,
	operations: append(sqlOperations, sqlFailovers...),
	start: func(ctx context.Context, _ bool) (env.Nodes, error) {
		s, err := env.StartMariaDB(ctx, nil)
		return env.Nodes{s}, err
	},
	services: []string{"mysql"},
	address:  func(at []string) string { return env.MariaDBAt(at[0]) },
	hostIn:   regexp.MustCompile(`@tcp\(([^()]*)\)`), // as go-sql-driver/mysql writes it
	counter:  countSQL,
	sweep:    sweepSQL,
	program:  env.MariaDBProgram,
}

func startMySQL(ctx context.Context, e *Environment, w Requirements) error {
	if err := e.account(ctx, w); err != nil {
		return err
	}
	if err := e.startSQLServer(ctx, w); err != nil {
		return err
	}
	if e.login = hostUser; e.passwordFile == "" {
		e.login += ":" + hostPassword
	}
	s, err := e.newSQLStore(ctx)
	if err != nil {
		return err
	}
	e.product = s
	if w.Setting == WithReplica {
		if err := s.startSQLReplica(ctx, w); err != nil {
			return err
		}
	}
	e.Setup.ReadOnly, e.Setup.Exhaust = e.switched(readOnly), e.switched(oneConnection)
	return nil
}

// loginTo is an address with another login.
func loginTo(address, login string) string { return login + address[strings.IndexByte(address, '@'):] }

func (e *Environment) startSQLServer(ctx context.Context, w Requirements) error {
	server, err := e.launchSQLServer(ctx, w)
	if err == nil {
		e.add(server)
	}
	return err
}

// launchSQLServer starts one that can be followed, or follow, where there are two.
func (e *Environment) launchSQLServer(ctx context.Context, w Requirements) (*env.Server, error) {
	wrap, err := e.startClock(ctx, w)
	if err != nil {
		return nil, err
	}
	o := &env.MariaDBOptions{Wrap: wrap, SQL: plainUser}
	if w.Setting == WithReplica {
		if os.Getenv("LOCKBENCH_MYSQLD") != "" { // MySQL has other words for it
			return nil, &env.NotInstalledError{Program: "mariadbd", Debian: "mariadb-server", Homebrew: "mariadb"}
		}
		o.Args = []string{"--log-bin", fmt.Sprintf("--server-id=%d", 1+len(e.servers))}
	}
	return env.StartMariaDB(ctx, o)
}

// plainUser makes the hosts' account, which may not write to a read-only server,
// as the one of package env may.
var plainUser = []string{
	"DROP USER IF EXISTS " + sqlUser,
	"CREATE USER " + sqlUser + " IDENTIFIED BY '" + hostPassword + "'",
	"GRANT ALL ON lockbench.* TO " + sqlUser,
	"GRANT PROCESS ON *.* TO " + sqlUser,
}

const sqlUser = "'" + hostUser + "'@'%'"
