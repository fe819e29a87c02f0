package store

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/fault"
)

// mysqlKind is one server of MariaDB or MySQL.
var mysqlKind = &Store{
	Name: "mysql",
	Terms: claim.Terms{
		Turn: func(ttl time.Duration) time.Duration { return min(ttl/2, 2*time.Second) },
		Remarks: map[claim.Rule]claim.Remark{
			claim.Leaked: {From: "On mysql a free row stays for a day, too"},
			claim.Woken:  {From: "On mysql it is half of the TTL but at most 2 s"},
		},
		Exceptions: []claim.Exception{
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.DataLost},
				Why:    "the row is lost with the data. Tokens go on above the server's clock",
				Source: 20,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.WritesLost},
				Why:    "a grant is on disk before it is answered only with `innodb_flush_log_at_trx_commit=1`, and `sync_binlog=1` where there is a binary log",
				Source: 20,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.OldData},
				Why:    "a grant that is younger than what was restored is not in it",
				Source: 20,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.ReplicaPromoted},
				Why:    "replication is asynchronous: the replica misses the last commits. The next token is higher as far as its clock is not behind",
				Source: 19,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.ClockForward},
				Why: "rows end at a time of the server's UTC_TIMESTAMP. So even a failover in order grants twice when the promoted server's clock is ahead: " +
					"a lease ends by as much too early. Keep the servers' clocks together, or wait for the longest TTL before the new one takes writes",
				Source: 22,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.ClockBack, claim.FailedOver},
				Why:    "the clock of the promoted server is ahead of that of the one before it, which was set back: a lease ends by as much too early",
				Source: 22,
			},
			{
				Rules: claim.Late(claim.Orphaned, claim.Leaked), All: []claim.Condition{claim.ClockBack},
				Why:    "rows end at a time of the server's UTC_TIMESTAMP: a lease that nobody renews, releases or asks for lasts for as much longer as the clock was set back",
				Source: 22,
			},
			{
				Rules: []claim.Rule{claim.Token}, All: []claim.Condition{claim.ClockBack}, Any: []claim.Condition{claim.DataLost, claim.WritesLost, claim.OldData, claim.ReplicaPromoted},
				Why:    "after a loss the server's clock is the floor of tokens",
				Source: 24,
			},
			{
				Rules: claim.Late(claim.Survives, claim.Leaked), All: []claim.Condition{claim.SeveralWriters},
				Why: "waiters on other nodes are not woken: they ask each second, without order. A host stays at one node; when it has to change, " +
					"the other one may lag and answer a renewal or a release with \"not held\", which `wsrep_sync_wait=7` prevents. Let all hosts use one node, " +
					"as a balancer does that has the others for backup",
				Source: 21,
			},
		},
	},
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
