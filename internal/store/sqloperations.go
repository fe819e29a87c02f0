package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
)

// sqlStep is one step of an operation.
type sqlStep func(ctx context.Context, s *sqlStore) error

func onSQL(do sqlStep) func(context.Context, *Environment, int) error {
	return func(ctx context.Context, e *Environment, _ int) error { return do(ctx, e.product.(*sqlStore)) }
}

// statements runs some. A table that does not exist yet is no error.
func statements(all ...string) sqlStep {
	return func(ctx context.Context, s *sqlStore) error {
		if err := s.exec(ctx, all...); err != nil && !numbered(err, unknownTable) {
			return err
		}
		return nil
	}
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
		Do:   onSQL(func(ctx context.Context, s *sqlStore) error { return s.readOnly(ctx, true) }),
		Undo: onSQL(func(ctx context.Context, s *sqlStore) error { return s.readOnly(ctx, false) }),
	},
	{
		Name: "max-connections", Does: "the server ends all connections and takes ten", Lasts: whileWatched, Stops: true, Recovers: time.Second,
		Do: onSQL(func(ctx context.Context, s *sqlStore) error {
			return errors.Join(s.exec(ctx, "SET GLOBAL max_connections = 10"), s.disconnect(ctx))
		}),
		Undo: onSQL(func(ctx context.Context, s *sqlStore) error { return s.setBack(ctx, "max_connections") }),
	},
	{
		Name: "user-connections", Does: "hosts may have one connection together", Lasts: whileWatched, Stops: true, Recovers: time.Second,
		Do:   onSQL(func(ctx context.Context, s *sqlStore) error { return s.exhaust(ctx, true) }),
		Undo: onSQL(func(ctx context.Context, s *sqlStore) error { return s.exhaust(ctx, false) }),
	},
	{Name: "kill", Does: "the server ends all connections of hosts", Do: onSQL(func(ctx context.Context, s *sqlStore) error { return s.disconnect(ctx) })},
	{
		Name: "password", Does: "the server has another password than the hosts, and ends their connections", Lasts: whileWatched, Stops: true, Recovers: time.Second,
		Do: onSQL(sqlPassword(otherPassword)), Undo: onSQL(sqlPassword(hostPassword)),
	},
	{
		Name: "rotate", Does: "the password of the hosts is changed, first in their file", Lasts: whileWatched, Recovers: time.Second,
		Do: onSQL(sqlRotate(otherPassword)), Undo: onSQL(sqlRotate(hostPassword)),
	},
	{
		Name: "read-lock", Does: "all tables are locked for a backup", Lasts: whileWatched, Stops: true, Recovers: time.Second,
		Do: onSQL(func(ctx context.Context, s *sqlStore) error { return s.hold(ctx, "FLUSH TABLES WITH READ LOCK") }), Undo: onSQL(letGo),
	},
	{
		Name: "row-locks", Does: "somebody's transaction locks the rows of up to 40 locks", Lasts: whileWatched, Stops: true, Recovers: time.Second,
		Do: onSQL(func(ctx context.Context, s *sqlStore) error {
			return s.hold(ctx, "START TRANSACTION", "SELECT name FROM "+sqlTable+" ORDER BY expires_at DESC LIMIT 40 FOR UPDATE")
		}),
		Undo: onSQL(letGo),
	},
	{
		Name: "foreign-rows", Does: "somebody's transaction locks rows of locks that nobody uses", Lasts: whileWatched,
		Do: onSQL(lockForeignRows), Undo: onSQL(letGo),
	},
	{Name: "optimize", Does: "the table of locks is optimized", Recovers: time.Second, Do: onSQL(statements("OPTIMIZE TABLE " + sqlTable))},
	{
		Name: "alter", Does: "the table of locks is given a comment, and is built anew", Recovers: time.Second,
		Do: onSQL(statements("ALTER TABLE "+sqlTable+" COMMENT = 'of locks'", "ALTER TABLE "+sqlTable+" FORCE")),
	},
	{
		Name: "delete", Does: "the row of a lock is deleted by hand", Makes: []string{string(claim.EndedByHand)},
		Do: onSQL(statements("DELETE FROM " + sqlTable + " WHERE owner <> '' ORDER BY RAND() LIMIT 1")),
	},
	{
		Name: "restore", Does: "all rows of locks are saved, and restored later", Lasts: whileWatched, Makes: []string{string(claim.OldData)},
		Do: onSQL(statements("CREATE TABLE " + sqlSaved + " AS SELECT * FROM " + sqlTable)),
		Undo: onSQL(func(ctx context.Context, s *sqlStore) error {
			err := s.hold(ctx, "START TRANSACTION", "DELETE FROM "+sqlTable, "INSERT INTO "+sqlTable+" SELECT * FROM "+sqlSaved, "COMMIT")
			return errors.Join(err, s.letGo(ctx), s.exec(ctx, "DROP TABLE IF EXISTS "+sqlSaved))
		}),
	},
	{Name: "truncate", Does: "all rows of locks are lost", Makes: []string{string(claim.DataLost)}, Do: onSQL(statements("TRUNCATE TABLE " + sqlTable))},
}...)

// sqlSettingOperations change one of [sqlChanges] for the sessions that follow.
func sqlSettingOperations() []Operation {
	var all []Operation
	for _, c := range sqlChanges {
		all = append(all, Operation{
			Name: strings.ReplaceAll(c.setting, "_", "-"), Does: "sessions begin with " + c.setting + " = " + c.value + ", and there are none of before", Lasts: whileWatched,
			Do: onSQL(func(ctx context.Context, s *sqlStore) error {
				return errors.Join(s.exec(ctx, "SET GLOBAL "+c.setting+" = "+c.value), s.disconnect(ctx))
			}),
			Undo: onSQL(func(ctx context.Context, s *sqlStore) error {
				return errors.Join(s.setBack(ctx, c.setting), s.disconnect(ctx))
			}),
		})
	}
	return all
}

// setBack gives one setting the value that it began with.
func (s *sqlStore) setBack(ctx context.Context, name string) error {
	value := s.began[name]
	if strings.Trim(value, "0123456789") != "" || value == "" {
		value = "'" + value + "'"
	}
	return s.exec(ctx, "SET GLOBAL "+name+" = "+value)
}

// sqlPassword changes what the server takes for right.
func sqlPassword(password string) sqlStep {
	return func(ctx context.Context, s *sqlStore) error {
		return errors.Join(s.exec(ctx, fmt.Sprintf("ALTER USER %s IDENTIFIED BY '%s'", sqlUser, password)), s.disconnect(ctx))
	}
}

func sqlRotate(to string) sqlStep {
	return func(ctx context.Context, s *sqlStore) error {
		if err := s.writePassword(to); err != nil {
			return err
		}
		return sqlPassword(to)(ctx, s)
	}
}

// foreignRows are so many that locking them locks much of the table.
const foreignRows = 500

// lockForeignRows locks rows that it makes itself, by name.
func lockForeignRows(ctx context.Context, s *sqlStore) error {
	var names, values []string
	for n := range foreignRows {
		name := fmt.Sprintf("'operator-%d'", n)
		names, values = append(names, name), append(values, "("+name+", UTC_TIMESTAMP(6))")
	}
	if err := statements("INSERT IGNORE INTO "+sqlTable+" (name, expires_at) VALUES "+strings.Join(values, ","))(ctx, s); err != nil {
		return err
	}
	return s.hold(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION",
		"SELECT name FROM "+sqlTable+" WHERE name IN ("+strings.Join(names, ",")+") FOR UPDATE")
}

func letGo(ctx context.Context, s *sqlStore) error { return s.letGo(ctx) }
