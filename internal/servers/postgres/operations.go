package postgres

import (
	"fmt"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
)

const (
	// table is the table of the locks. saved is a copy that an operation makes and restores.
	table = "lockbench.locks"
	saved = "lockbench_saved_locks"
)

// The functions setting and undone return steps that affect open sessions as well as new ones.
func setting(name, value string) servers.Step {
	return servers.Statements("ALTER SYSTEM SET "+name+" = "+value, "SELECT pg_reload_conf()")
}

func undone(name string) servers.Step {
	return servers.Statements("ALTER SYSTEM RESET "+name, "SELECT pg_reload_conf()")
}

func role(change string) servers.Step {
	return servers.InTurn(servers.Statements("ALTER ROLE "+servers.HostUser+" "+change), endSessions)
}

func login(password string) servers.Step { return role("PASSWORD '" + password + "'") }

var operations = []servers.Operation{
	{
		Name: "read-only", Does: "the server is read-only", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do: setting("default_transaction_read_only", "on"), Undo: undone("default_transaction_read_only"),
	},
	{
		Name: "user-connections", Does: "hosts may have one connection together", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do: role("CONNECTION LIMIT 1"), Undo: role("CONNECTION LIMIT -1"),
	},
	{Name: "kill", Does: "the server ends all connections of hosts", Do: endSessions},
	{
		Name: "cancel", Does: "all statements of hosts are cancelled",
		Do: servers.Statements("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = '" + servers.HostUser + "' AND state = 'active'"),
	},
	{
		Name: "password", Does: "the server has another password than the hosts, and ends their connections", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do: login(servers.OtherPassword), Undo: login(servers.HostPassword),
	},
	{
		Name: "rotate", Does: "the password of the hosts is changed, first in their file", Lasts: servers.WhileWatched, Recovers: time.Second,
		Do: servers.Rotate(servers.OtherPassword, login(servers.OtherPassword)), Undo: servers.Rotate(servers.HostPassword, login(servers.HostPassword)),
	},
	{
		Name: "isolation", Does: "sessions of hosts begin with serializable transactions, and there are none of before", Lasts: servers.WhileWatched,
		Do: role("SET default_transaction_isolation = 'serializable'"), Undo: role("RESET default_transaction_isolation"),
	},
	{
		Name: "commit", Does: "sessions of hosts commit without waiting for the disk, and there are none of before", Lasts: servers.WhileWatched,
		Do: role("SET synchronous_commit = off"), Undo: role("RESET synchronous_commit"),
	},
	{
		Name: "table-lock", Does: "the table of locks is locked", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do: servers.Holding("BEGIN", "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE"), Undo: servers.LetGo,
	},
	{
		Name: "row-locks", Does: "a foreign transaction locks the rows of up to 40 locks", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do: servers.Holding("BEGIN", "SELECT name FROM "+table+" ORDER BY ends DESC LIMIT 40 FOR UPDATE"), Undo: servers.LetGo,
	},
	{
		Name: "foreign-rows", Does: "a foreign transaction locks rows of locks that no host uses", Lasts: servers.WhileWatched,
		Do: servers.InTurn(
			servers.Statements(fmt.Sprintf("INSERT INTO %s (name) SELECT convert_to('operator-' || n, 'UTF8') FROM generate_series(1, %d) n ON CONFLICT DO NOTHING", table, foreignRows)),
			servers.Holding("BEGIN", "SELECT name FROM "+table+" WHERE name >= 'operator-' AND name < 'operator.' FOR UPDATE")),
		Undo: servers.LetGo,
	},
	{
		Name: "old-snapshot", Does: "a foreign transaction reads the table of locks, and goes on", Lasts: servers.WhileWatched,
		Do: servers.Holding("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM "+table), Undo: servers.LetGo,
	},
	{Name: "vacuum", Does: "the table of locks is written anew", Recovers: time.Second, Do: servers.Statements("VACUUM FULL " + table)},
	{Name: "alter", Does: "the table of locks is given a column", Recovers: time.Second, Do: servers.Statements("ALTER TABLE "+table+" ADD COLUMN note text", "ALTER TABLE "+table+" DROP COLUMN note")},
	{
		Name: "delete", Does: "the row of a lock is deleted by hand", Makes: []claim.Condition{claim.EndedByHand},
		Do: servers.Statements("DELETE FROM " + table + " WHERE name = (SELECT name FROM " + table + " WHERE owner <> '' ORDER BY random() LIMIT 1)"),
	},
	{
		Name: "restore", Does: "all rows of locks are saved, and restored later", Lasts: servers.WhileWatched, Makes: []claim.Condition{claim.OldData},
		Do: servers.Statements("CREATE TABLE " + saved + " AS SELECT * FROM " + table),
		Undo: servers.InTurn(
			servers.Holding("BEGIN", "DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM "+saved, "COMMIT"),
			servers.LetGo, servers.Statements("DROP TABLE IF EXISTS "+saved)),
	},
	{Name: "truncate", Does: "all rows of locks are lost", Makes: []claim.Condition{claim.DataLost}, Do: servers.Statements("TRUNCATE " + table)},
}

// foreignRows is the number of rows that an operator locks. They are a large part of the table.
const foreignRows = 500
