package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
)

// statements runs some. A table that does not exist yet is no error.
func statements(all ...string) Step {
	return on(func(ctx context.Context, s *sqlStore, _ int) error {
		if err := s.exec(ctx, all...); err != nil && !numbered(err, unknownTable) {
			return err
		}
		return nil
	})
}

// holding runs some on a connection that stays, until [letGo].
func holding(all ...string) Step {
	return on(func(ctx context.Context, s *sqlStore, _ int) error { return s.hold(ctx, all...) })
}

var (
	readOnly = change{statements("SET GLOBAL read_only = ON"), statements("SET GLOBAL read_only = OFF")}
	// oneConnection gives the account a limit: the server's own is at least 10.
	oneConnection = change{inTurn(connectionLimit(1), endSessions), connectionLimit(0)}
)

// connectionLimit says how many connections the hosts may have together, 0 for any.
func connectionLimit(most int) Step {
	return statements(fmt.Sprintf("ALTER USER %s WITH MAX_USER_CONNECTIONS %d", sqlUser, most))
}

// sqlChanges are settings that sessions begin with, which concern none that
// makes its own.
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

var sqlOperations = append(sqlSettingOperations(), []Operation{
	{
		Name: "read-only", Does: "the server is read-only", Lasts: whileWatched, Stops: true, Recovers: time.Second,
		Do: readOnly.do, Undo: readOnly.undo,
	},
	{
		Name: "max-connections", Does: "the server ends all connections and takes ten", Lasts: whileWatched, Stops: true, Recovers: time.Second,
		Do: inTurn(statements("SET GLOBAL max_connections = 10"), endSessions), Undo: setBack("max_connections"),
	},
	{
		Name: "user-connections", Does: "hosts may have one connection together", Lasts: whileWatched, Stops: true, Recovers: time.Second,
		Do: oneConnection.do, Undo: oneConnection.undo,
	},
	{Name: "kill", Does: "the server ends all connections of hosts", Do: endSessions},
	{
		Name: "password", Does: "the server has another password than the hosts, and ends their connections", Lasts: whileWatched, Stops: true, Recovers: time.Second,
		Do: sqlPassword(otherPassword), Undo: sqlPassword(hostPassword),
	},
	{
		Name: "rotate", Does: "the password of the hosts is changed, first in their file", Lasts: whileWatched, Recovers: time.Second,
		Do: sqlRotate(otherPassword), Undo: sqlRotate(hostPassword),
	},
	{
		Name: "read-lock", Does: "all tables are locked for a backup", Lasts: whileWatched, Stops: true, Recovers: time.Second,
		Do: holding("FLUSH TABLES WITH READ LOCK"), Undo: on(letGo),
	},
	{
		Name: "row-locks", Does: "somebody's transaction locks the rows of up to 40 locks", Lasts: whileWatched, Stops: true, Recovers: time.Second,
		Do:   holding("START TRANSACTION", "SELECT name FROM "+sqlTable+" ORDER BY expires_at DESC LIMIT 40 FOR UPDATE"),
		Undo: on(letGo),
	},
	{
		Name: "foreign-rows", Does: "somebody's transaction locks rows of locks that nobody uses", Lasts: whileWatched,
		Do: lockForeignRows(), Undo: on(letGo),
	},
	{
		Name: "gap-locks", Does: "somebody's transaction locks the gaps behind the rows of up to 40 locks, and no row", Lasts: whileWatched, StopsGrants: true, Recovers: time.Second,
		Do: on(lockGaps), Undo: on(letGo),
	},
	{Name: "optimize", Does: "the table of locks is optimized", Recovers: time.Second, Do: statements("OPTIMIZE TABLE " + sqlTable)},
	{
		Name: "alter", Does: "the table of locks is given a comment, and is built anew", Recovers: time.Second,
		Do: statements("ALTER TABLE "+sqlTable+" COMMENT = 'of locks'", "ALTER TABLE "+sqlTable+" FORCE"),
	},
	{
		Name: "delete", Does: "the row of a lock is deleted by hand", Makes: []claim.Condition{claim.EndedByHand},
		Do: statements("DELETE FROM " + sqlTable + " WHERE owner <> '' ORDER BY RAND() LIMIT 1"),
	},
	{
		Name: "restore", Does: "all rows of locks are saved, and restored later", Lasts: whileWatched, Makes: []claim.Condition{claim.OldData},
		Do: statements("CREATE TABLE " + sqlSaved + " AS SELECT * FROM " + sqlTable),
		Undo: inTurn(
			holding("START TRANSACTION", "DELETE FROM "+sqlTable, "INSERT INTO "+sqlTable+" SELECT * FROM "+sqlSaved, "COMMIT"),
			on(letGo), statements("DROP TABLE IF EXISTS "+sqlSaved)),
	},
	{Name: "truncate", Does: "all rows of locks are lost", Makes: []claim.Condition{claim.DataLost}, Do: statements("TRUNCATE TABLE " + sqlTable)},
}...)

// sqlSettingOperations change one of [sqlChanges] for the sessions that follow.
func sqlSettingOperations() []Operation {
	var all []Operation
	for _, c := range sqlChanges {
		all = append(all, Operation{
			Name: strings.ReplaceAll(c.setting, "_", "-"), Does: "sessions begin with " + c.setting + " = " + c.value + ", and there are none of before", Lasts: whileWatched,
			Do:   inTurn(statements("SET GLOBAL "+c.setting+" = "+c.value), endSessions),
			Undo: inTurn(setBack(c.setting), endSessions),
		})
	}
	return all
}

// setBack gives one setting the value that it began with.
func setBack(name string) Step {
	return on(func(ctx context.Context, s *sqlStore, _ int) error {
		value := s.began[name]
		if strings.Trim(value, "0123456789") != "" || value == "" {
			value = "'" + value + "'"
		}
		return s.exec(ctx, "SET GLOBAL "+name+" = "+value)
	})
}

// sqlPassword changes what the server takes for right.
func sqlPassword(password string) Step {
	return inTurn(statements(fmt.Sprintf("ALTER USER %s IDENTIFIED BY '%s'", sqlUser, password)), endSessions)
}

func sqlRotate(to string) Step {
	return func(ctx context.Context, e *Environment, n int) error {
		if err := e.writePassword(to); err != nil {
			return err
		}
		return sqlPassword(to)(ctx, e, n)
	}
}

// lockGaps asks for rows that do not exist, each next to one that does.
func lockGaps(ctx context.Context, s *sqlStore, _ int) error {
	names, err := s.texts(ctx, "SELECT CONCAT('0x', HEX(CONCAT(name, '!'))) FROM "+sqlTable+" ORDER BY expires_at DESC LIMIT 40")
	if err != nil || len(names) == 0 {
		if numbered(err, unknownTable) {
			err = nil
		}
		return err
	}
	return s.hold(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION",
		"SELECT name FROM "+sqlTable+" WHERE name IN ("+strings.Join(names, ",")+") FOR UPDATE")
}

// foreignRows are so many that locking them locks much of the table.
const foreignRows = 500

// lockForeignRows locks rows that it makes itself, by name.
func lockForeignRows() Step {
	var names, values []string
	for n := range foreignRows {
		name := fmt.Sprintf("'operator-%d'", n)
		names, values = append(names, name), append(values, "("+name+", UTC_TIMESTAMP(6))")
	}
	return inTurn(
		statements("INSERT IGNORE INTO "+sqlTable+" (name, expires_at) VALUES "+strings.Join(values, ",")),
		holding("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION",
			"SELECT name FROM "+sqlTable+" WHERE name IN ("+strings.Join(names, ",")+") FOR UPDATE"))
}
