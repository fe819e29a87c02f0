// Package postgres keeps locks as rows of a table in PostgreSQL 14 and later. Its tests were run
// on PostgreSQL 15.18, also behind PgBouncer 1.18.
//
// # Guarantee
//
// A lock is one row, whose primary key is the lock's name. Only this row names the lock's holder.
// SQL functions in the schema lockbench take, renew and release the lock. A function call is one
// statement and one transaction, which first locks its rows and then reads them. All times come
// from the server (clock_timestamp), so the clocks and time zones of hosts do not matter. A new
// token is the row's last token plus one, or the server's clock in microseconds if that is higher.
//
// If fsync and full_page_writes are on and synchronous_commit is not off, a grant is on disk before
// the caller gets it, and tokens have fencing class strict. Otherwise tokens have class durable.
// [Backend.Properties] returns the class.
//
// # What breaks it
//
//   - Asynchronous replication: a standby that is promoted may not know the last grants. A second
//     holder is then possible until the first holder's TTL is over. Tokens keep rising if the
//     clocks of the two servers agree. A database that was restored from a dump has the same risks.
//   - A server clock that is turned forward: leases end early, and their holders notice it at the
//     next renewal. If the clock is turned back, leases last longer.
//   - An address that leads to two servers. A host uses only one of the servers while that server
//     answers. The host logs a warning, and its Check fails. But another host may use the other
//     server. A server is recognized by its start time and listening address.
//   - Rows that an operator changes by hand.
//
// # Cost
//
//	operation            round trips   commits (fsyncs)
//	acquire              1             1
//	acquire, refused     1             0
//	renew                1             1
//	release              1             1, which also makes the next waiter's grant
//	wait                 1             0
//	grant after a wait   0             0
//	withdraw             1             1
//	inspect              1             0
//
// Operations that arrive while other calls are under way share the next call and its commit. A call
// takes at most 64 operations, or 500 renewals.
//
// A row that another client keeps locked delays only operations on that row. A call that waits for
// the row fails after 50 ms. Its operations on other rows are then sent again. Each operation on
// the locked row gets a separate call. These calls use at most a quarter of the connections.
//
// Each lock has one first-in, first-out queue for the waiters of all hosts. A release grants the
// lock to the first waiter whose process lives. The grant lasts 0.5 s, or up to 2 s for a distant
// waiter. The same commit sends the waiter a notice (NOTIFY), and core then renews the lease. A
// process with waiters sends five heartbeats ("signs of life") a second over the connection that
// receives notices. Its waiters leave their queues if the process is silent for 0.1 s longer than a
// grant lasts, or if this connection ends. A dead waiter delays later waiters by 0.5 s. Without
// notices, waiters poll every 30 to 90 ms, still in order, and a dead waiter delays them by 1 s.
//
// A slow fsync delays all grants, as it delays every other commit of the database.
//
// The row of a free lock keeps the last token. The row is deleted when the lock has been free for a
// day and the token is a day old.
//
// # Settings that matter
//
// max_connections must allow Connections + 1 for every host. A transaction that stays open for
// hours makes the server keep old versions of rows, which slows down every statement on busy rows.
//
// Behind a pooler that gives a connection to another client after each transaction, everything
// works except notices. To get notices, set Options.ListenAddress to an address of the server
// itself. Without such an address, waiters poll, and Check fails unless ListenAddress is "none".
// PgBouncer keeps requests while the server is down, so the backend notices an outage only after
// Options.RequestTimeout.
//
// No setting of a role or a database, except synchronous_commit, changes how locks work.
//
// # Rights
//
// The role needs USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its four tables. If
// the schema does not exist, the role also needs CREATE on the database. The command
// "lockplugin-postgres ddl" prints SQL that creates the schema and grants the rights. The backend
// sends no request to a read-only server, such as a standby, but its waiters go on waiting.
//
// # Where is what
//
//   - schema.sql: the tables, every statement, and why two owners never hold a lock at once
//   - backend.go: the operations and the queries
//   - batch.go: which operations share a call, and what a locked row delays
//   - wait.go: waiting, notices, signs of life
//   - connection.go: connections, and what their errors mean
//   - schema.go: making the schema, Check, and deleting old rows
//   - options.go, spec.go: the configuration, and the claims of Properties
package postgres
