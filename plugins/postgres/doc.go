// Package postgres keeps locks as rows of a table in PostgreSQL 14 and later. Its tests
// were run on PostgreSQL 15.18, also behind PgBouncer 1.18.
//
// # Guarantee
//
// A lock is one row, named by its primary key, and the row alone decides. It is taken,
// renewed and released by functions in the schema lockbench, each of which is one
// statement and one transaction, locks the rows that it is about, and looks then. All
// times are the server's (clock_timestamp): the clocks, names and time zones of hosts do
// not matter. The token is the higher one of the row's last token plus one and the
// server's clock in microseconds, written by the statement that grants.
//
// With fsync and full_page_writes on, and another synchronous_commit than off, a grant
// is on disk before it is answered, and the tokens are fencing class strict; else durable.
// [Backend.Properties] says which.
//
// # What breaks it
//
//   - Asynchronous replication: a standby that is promoted may not know of the last
//     grants. A second holder is then possible until the first one's TTL is over. Tokens
//     go on rising if the two servers' clocks agree. The same goes for a restored dump.
//   - A server's clock that is turned forward ends leases early; their holders notice with
//     the next renewal. One that is turned back lengthens what is held.
//   - An address that leads to two servers. A host stays at one of them while that
//     serves, warns, and its Check fails; but another host may stay at the other one.
//     Servers are told apart by when and where they were started.
//   - Statements written by hand that change rows.
//
// # Cost
//
//	operation            round trips   commits (fsyncs)
//	acquire              1             1
//	acquire, refused     1             0
//	renew                1             1
//	release              1             1, and the next waiter has the lock by it
//	wait                 1             0
//	be granted it then   0             0
//	withdraw             1             1
//	inspect              1             0
//
// Operations that come while others are on their way share the next call, up to 64 to a
// commit (renewals: 500), so a busy host commits far less often than it locks.
//
// A row that somebody else's transaction keeps locked holds up nothing but itself: a call
// waits for it for 50 ms; then the rest is sent without it, and what wants it is sent
// alone, on at most a quarter of the connections.
//
// Waiters stand in a queue, first in first out over all hosts. A release grants the lock
// to the first one whose process lives, for half a second (for more, up to 2 s, to one
// that is far away), in the same commit, which also sends the notice (NOTIFY): core renews
// it. A process that waits gives five signs of life a second over the connection that
// hears these notices; one that was silent for that half second and 0.1 s more, or whose
// connection has ended, loses its places. A waiter that is gone all the same costs the half
// second. Where no notice comes, waiters ask each 30 to 90 ms, in their order, and one
// that is gone costs a second.
//
// A grant is answered when it is on disk: a disk that stalls in an fsync holds up all of
// them for as long, as it does every commit of the database.
//
// A free row is kept for the sake of its token until both are a day old, and then purged.
//
// # Settings that matter
//
// max_connections must hold Connections + 1 of every host. A transaction that stays open
// for hours keeps old versions of rows, and slows every statement on busy ones: that is so
// for every table that is updated often.
//
// Behind a pooler that gives connections to another client with each transaction,
// everything works but the notices: Options.ListenAddress leads to the server itself, or
// waiters ask, and Check fails unless that is meant. PgBouncer keeps a request while the
// server is away: an outage is seen after Options.RequestTimeout.
//
// Other settings of a role or a database change nothing.
//
// # Rights
//
// USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its four tables; CREATE on
// the database where it is not there yet: "lockplugin-postgres ddl" prints all. Nothing is
// asked of a server that is read-only: it is a standby, or in a failover, and waiters go
// on waiting.
//
// # Where is what
//
//   - schema.sql: the tables, every statement, and why two never hold a lock
//   - backend.go: the operations, and what reads
//   - batch.go: which operations share a call, and what a locked row holds back
//   - wait.go: waiting, notices, signs of life
//   - connection.go: connections, and what their errors mean
//   - schema.go: making the schema, Check, and what is dropped in time
//   - options.go, spec.go: the configuration, and what is claimed
package postgres
