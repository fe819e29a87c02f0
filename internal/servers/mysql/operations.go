package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// connectionLimit returns a step that limits the connections of all hosts together; 0 is no limit.
func connectionLimit(most int) servers.Step {
	return servers.Statements(fmt.Sprintf("ALTER USER %s WITH MAX_USER_CONNECTIONS %d", sqlUser, most))
}

// sqlChanges are new defaults for sessions that begin later. A session that sets such a setting
// itself is not affected.
var sqlChanges = []struct{ setting, value string }{
	{"completion_type", "'CHAIN'"},
	{"sql_mode", "'ANSI,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,ONLY_FULL_GROUP_BY'"},
	{"autocommit", "0"},
	{"innodb_lock_wait_timeout", "1"},
	{"max_allowed_packet", "4096"},
	{"max_connect_errors", "1"},
	{"wait_timeout", "1"},
	{"time_zone", "'-11:00'"},
}

var operations = append(sqlSettingOperations(), []servers.Operation{
	{
		Name: "read-only", Does: "the server is read-only", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do: servers.Statements("SET GLOBAL read_only = ON"), Undo: setBack("read_only"),
	},
	{
		Name: "max-connections", Does: "the server ends all connections and takes ten", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do: servers.InTurn(servers.Statements("SET GLOBAL max_connections = 10"), endSessions), Undo: setBack("max_connections"),
	},
	{
		Name: "user-connections", Does: "hosts may have one connection together", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		// The limit is for the hosts' account, because max_connections cannot be less than 10.
		Do: servers.InTurn(connectionLimit(1), endSessions), Undo: connectionLimit(0),
	},
	{Name: "kill", Does: "the server ends all connections of hosts", Do: endSessions},
	{Name: "cancel", Does: "all statements of hosts are cancelled, before or after their commit", Do: kill("KILL QUERY ")},
	{
		Name: "password", Does: "the server has another password than the hosts, and ends their connections", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do: sqlPassword(servers.OtherPassword), Undo: sqlPassword(servers.HostPassword),
	},
	{
		Name: "rotate", Does: "the password of the hosts is changed, first in their file", Lasts: servers.WhileWatched, Recovers: time.Second,
		Do: servers.Rotate(servers.OtherPassword, sqlPassword(servers.OtherPassword)), Undo: servers.Rotate(servers.HostPassword, sqlPassword(servers.HostPassword)),
	},
	{
		Name: "read-lock", Does: "all tables are locked for a backup", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do: servers.Holding("FLUSH TABLES WITH READ LOCK"), Undo: servers.LetGo,
	},
	{
		Name: "row-locks", Does: "a foreign transaction locks the rows of up to 40 locks", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do:   servers.Holding("START TRANSACTION", "SELECT name FROM "+sqlTable+" ORDER BY expires_at DESC LIMIT 40 FOR UPDATE"),
		Undo: servers.LetGo,
	},
	{
		Name: "foreign-rows", Does: "a foreign transaction locks rows of locks that no host uses", Lasts: servers.WhileWatched,
		Do: lockForeignRows(), Undo: servers.LetGo,
	},
	{
		Name: "gap-locks", Does: "a foreign transaction locks the gaps behind the rows of up to 40 locks, and no row", Lasts: servers.WhileWatched, StopsGrants: true, Recovers: time.Second,
		Do: servers.On(lockGaps), Undo: servers.LetGo,
	},
	{Name: "optimize", Does: "the table of locks is optimized", Recovers: time.Second, Do: servers.Statements("OPTIMIZE TABLE " + sqlTable)},
	{
		Name: "alter", Does: "the table of locks is given a comment, and is built anew", Recovers: time.Second,
		Do: servers.Statements("ALTER TABLE "+sqlTable+" COMMENT = 'of locks'", "ALTER TABLE "+sqlTable+" FORCE"),
	},
	{
		Name: "delete", Does: "the row of a lock is deleted by hand", Makes: []claim.Condition{claim.EndedByHand},
		Do: servers.Statements("DELETE FROM " + sqlTable + " WHERE owner <> '' ORDER BY RAND() LIMIT 1"),
	},
	{
		Name: "restore", Does: "all rows of locks are saved, and restored later", Lasts: servers.WhileWatched, Makes: []claim.Condition{claim.OldData},
		Do: servers.Statements("CREATE TABLE " + sqlSaved + " AS SELECT * FROM " + sqlTable),
		Undo: servers.InTurn(
			servers.Holding("START TRANSACTION", "DELETE FROM "+sqlTable, "INSERT INTO "+sqlTable+" SELECT * FROM "+sqlSaved, "COMMIT"),
			servers.LetGo, servers.Statements("DROP TABLE IF EXISTS "+sqlSaved)),
	},
	{Name: "truncate", Does: "all rows of locks are lost", Makes: []claim.Condition{claim.DataLost}, Do: servers.Statements("TRUNCATE TABLE " + sqlTable)},
}...)

func sqlSettingOperations() []servers.Operation {
	var all []servers.Operation
	for _, c := range sqlChanges {
		all = append(all, servers.Operation{
			Name: strings.ReplaceAll(c.setting, "_", "-"), Does: "sessions begin with " + c.setting + " = " + c.value + ", and there are none of before", Lasts: servers.WhileWatched,
			Do:   servers.InTurn(servers.Statements("SET GLOBAL "+c.setting+" = "+c.value), endSessions),
			Undo: servers.InTurn(setBack(c.setting), endSessions),
		})
	}
	return all
}

// setBack returns a step that gives a setting the value that it had when the server started.
func setBack(name string) servers.Step {
	return servers.On(func(ctx context.Context, s *store, _ int) error {
		value := s.began[name]
		if strings.Trim(value, "0123456789") != "" || value == "" {
			value = "'" + value + "'"
		}
		return s.Exec(ctx, "SET GLOBAL "+name+" = "+value)
	})
}

// sqlPassword returns a step that makes password the only password that hosts can log in with.
func sqlPassword(password string) servers.Step {
	return servers.InTurn(servers.Statements(fmt.Sprintf("ALTER USER %s IDENTIFIED BY '%s'", sqlUser, password)), endSessions)
}

// lockGaps locks the gaps between rows by SELECT FOR UPDATE of rows that do not exist. It sends one
// query for each gap, because a query for several rows might lock all rows of a small table.
func lockGaps(ctx context.Context, s *store, _ int) error {
	names, err := servers.Texts(ctx, s.Admin, "SELECT CONCAT('0x', HEX(CONCAT(name, '!'))) FROM "+sqlTable+" ORDER BY expires_at DESC LIMIT 40")
	if err != nil && !s.Absent(err) {
		return err
	}
	all := []string{"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION"}
	for _, name := range names {
		all = append(all, "SELECT name FROM "+sqlTable+" WHERE name = "+name+" FOR UPDATE")
	}
	return s.Hold(ctx, all...)
}

// foreignRows is the number of rows that an operator locks. They are a large part of the table.
const foreignRows = 500

func lockForeignRows() servers.Step {
	var names, values []string
	for n := range foreignRows {
		name := fmt.Sprintf("'operator-%d'", n)
		names, values = append(names, name), append(values, "("+name+", UTC_TIMESTAMP(6))")
	}
	return servers.InTurn(
		servers.Statements("INSERT IGNORE INTO "+sqlTable+" (name, expires_at) VALUES "+strings.Join(values, ",")),
		servers.Holding("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION",
			"SELECT name FROM "+sqlTable+" WHERE name IN ("+strings.Join(names, ",")+") FOR UPDATE"))
}

// The constant ahead is the time by which the promoted replica's clock is ahead. Most leases have
// less time left than that.
const ahead = 3 * time.Second

// failovers make the replica the master without losing writes. Undo makes the first server master.
var failovers = []servers.Operation{
	sqlFailover("failover", "the replica takes over, in order, and hosts are led to it", (*inject.Proxy).Retarget),
	sqlFailover("failover-ahead", "the replica, whose clock is 3 s ahead, takes over, in order, and hosts are led to it", (*inject.Proxy).Retarget, claim.ClockForward, claim.ClockBack),
	// If a reply shows that a connection leads to a replica, the host closes the connection.
	sqlFailover("repoint", "the replica takes over, in order, and new connections of hosts lead to it; those that there are stay", (*inject.Proxy).Lead),
}

func sqlFailover(name, does string, by inject.Leading, makes ...claim.Condition) servers.Operation {
	o := servers.Operation{
		Name: name, Does: does, Settings: []string{servers.WithReplica}, Lasts: servers.UntilLost, Stops: true, StopsFor: time.Second, Recovers: time.Second,
		Makes: append(makes, claim.FailedOver),
		Do:    servers.On(func(ctx context.Context, s *store, _ int) error { return s.failOver(ctx, 0, by) }),
		Undo:  servers.On(func(ctx context.Context, s *store, _ int) error { return s.failOver(ctx, 1, by) }),
	}
	if len(makes) > 0 {
		o.Do = servers.InTurn(clockAhead, o.Do)
	}
	return o
}

func clockAhead(_ context.Context, e *servers.Environment, _ int) error {
	return e.ShiftClock(1, ahead)
}

func (s *store) startReplica(ctx context.Context, w servers.Requirements) error {
	server, err := start(ctx, s.Environment, w)
	if err != nil {
		return err
	}
	s.AtEnd(server.Close)
	s.Replica = server
	if s.second, err = Dial(driver.Config{"address": Address(server)}); err != nil {
		return err
	}
	s.AtEnd(s.second.Close)
	for _, db := range s.both() { // forget the statements that each server ran at its start
		if err := servers.Exec(ctx, db, "RESET MASTER"); err != nil {
			return err
		}
	}
	return s.follow(ctx, 1, "slave_pos")
}

func (s *store) both() [2]*sql.DB { return [2]*sql.DB{s.Admin, s.second} }

func (s *store) addrs() [2]string { return [2]string{s.Servers[0].Addr(), s.Replica.Addr()} }

// follow makes server n (0 or 1) replicate the other server. The replication begins at the GTID
// position that the parameter from names, such as slave_pos.
func (s *store) follow(ctx context.Context, n int, from string) error {
	host, port, err := net.SplitHostPort(s.addrs()[1-n])
	if err != nil {
		return err
	}
	user, password, _ := strings.Cut(At("")[:strings.IndexByte(At(""), '@')], ":")
	return servers.Exec(ctx, s.both()[n], "SET GLOBAL read_only = ON",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='%s', MASTER_PASSWORD='%s', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=%s",
			host, port, user, password, from), "START SLAVE")
}

// failOver makes the replica of server n the master after the replica has received all writes. It
// then leads the hosts to the new master, and makes server n the replica.
func (s *store) failOver(ctx context.Context, n int, by inject.Leading) error {
	from, to := s.both()[n], s.both()[1-n]
	var at string
	var behind int
	if err := errors.Join(servers.Exec(ctx, from, "SET GLOBAL read_only = ON"), from.QueryRowContext(ctx, "SELECT @@gtid_binlog_pos").Scan(&at)); err != nil {
		return err
	}
	if err := to.QueryRowContext(ctx, "SELECT MASTER_GTID_WAIT(?, ?)", at, servers.Timeout.Seconds()).Scan(&behind); err != nil {
		return err
	}
	if behind != 0 {
		return fmt.Errorf("the replica has not received transaction %s after %v", at, servers.Timeout)
	}
	err := servers.Exec(ctx, to, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")
	return errors.Join(err, s.Lead(0, by, s.addrs()[1-n]), s.follow(ctx, n, "current_pos"))
}

func (s *store) follows(ctx context.Context) error {
	var name, is string
	err := s.second.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Slave_running'").Scan(&name, &is)
	if err == nil && is != "ON" {
		err = errors.New("its replica does not follow")
	}
	return err
}
