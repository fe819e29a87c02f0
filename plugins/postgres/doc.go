// Package postgres keeps locks as rows of a table in PostgreSQL 14 and later. Its tests
// were run on PostgreSQL 15.18, also behind PgBouncer 1.18.
//
// # Guarantee
//
// A lock is one row, whose primary key is the lock's name. The row alone decides. The lock is
// taken, renewed and released by functions in the schema lockbench. Each call is one statement and
// transaction, which first locks its rows and then reads them. All times are the server's
// (clock_timestamp), so the clocks, names and time zones of hosts do not matter. The token is the
// row's last token plus one or the server's clock in microseconds, whichever is higher.
//
// With fsync and full_page_writes on, and synchronous_commit other than off, a grant is on disk
// before it is answered, and the tokens have fencing class strict. Otherwise they have class
// durable. [Backend.Properties] says which.
//
// # What breaks it
//
//   - Asynchronous replication: a standby that is promoted may not know the last grants. A
//     second holder is then possible until the first holder's TTL is over. Tokens keep rising
//     if the two servers' clocks agree. The same is true of a server with a restored dump.
//   - A server clock that is turned forward ends leases early; their holders notice with the next
//     renewal. A clock that is turned back lengthens leases.
//   - An address that leads to two servers. A host stays at one of them while that server
//     serves, logs a warning, and fails its Check. But another host may stay at the other
//     server. Servers are told apart by their start time and listening address.
//   - Statements that an operator writes by hand and that change rows.
//
// # Cost
//
//	operation            round trips   commits (fsyncs)
//	acquire              1             1
//	acquire, refused     1             0
//	renew                1             1
//	release              1             1, which also grants it to the next waiter
//	wait                 1             0
//	grant after a wait   0             0
//	withdraw             1             1
//	inspect              1             0
//
// Operations that come while others are under way share the next call, up to 64, or 500 renewals,
// in one commit. So a busy host commits far less often than it locks.
//
// A row that another client's transaction keeps locked delays only operations on that row. A
// call waits for the row for 50 ms. Then the operations on other rows are sent again.
// Operations on the locked row are sent one by one, on at most a quarter of the connections.
//
// Waiters are in a queue, first in, first out over all hosts. A release grants the lock to the
// first waiter whose process lives, for half a second, or up to 2 s for a distant waiter. The same
// commit sends the waiter a notice (NOTIFY), and core renews the lease. A waiting process gives
// five signs of life a second over the connection that receives these notices. A process that was
// silent for 0.1 s longer than the grant lasts, or whose connection has ended, loses its places. A
// waiter that is gone but still has its place costs the others the half second. If notices do not
// arrive, waiters ask every 30 to 90 ms, in their order, and a dead waiter costs a second.
//
// A grant is answered when it is on disk. A disk that stalls in an fsync delays all grants, as it
// delays every commit of the database.
//
// A free row is kept, because of its token, until the row's end and its token are a day old, and
// then purged.
//
// # Settings that matter
//
// max_connections must allow Connections + 1 for every host. A transaction that
// stays open for hours keeps old versions of rows, and slows down every
// statement on busy rows. This is so for every table that is updated often.
//
// Behind a pooler that gives a connection to another client after each transaction, everything
// works except the notices. Options.ListenAddress must then lead directly to the server. Otherwise
// waiters poll, and Check fails unless ListenAddress is none. PgBouncer holds requests back while
// the server is away, so an outage is noticed only after Options.RequestTimeout.
//
// Other settings of a role or a database change nothing.
//
// # Rights
//
// The role needs USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on its four tables, and
// CREATE on the database unless the schema exists: "lockplugin-postgres ddl" prints all. A
// read-only server (a standby, or in a failover) gets no request. Waiters go on waiting.
//
// # Where is what
//
//   - schema.sql: the tables, every statement, and why two owners never hold a lock
//   - backend.go: the operations and the queries
//   - batch.go: which operations share a call, and what a locked row delays
//   - wait.go: waiting, notices, signs of life
//   - connection.go: connections, and what their errors mean
//   - schema.go: making the schema, Check, and deleting old rows
//   - options.go, spec.go: the configuration, and the claims of Properties
package postgres
