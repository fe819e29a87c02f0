package mysql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
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
