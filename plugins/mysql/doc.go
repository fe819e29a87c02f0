// Package mysql keeps locks as rows of one table in MySQL 8.4 and later or
// MariaDB 10.6 and later. Its tests were run on MySQL 9.7.4 and MariaDB
// 10.11.19 and 11.8.6.
//
// # Guarantee
//
// A lock is one row, whose primary key is the lock's name. The row alone decides. Single statements
// take, renew and release the lock. These statements compare owner and token under the row lock.
// All times are the server's (UTC_TIMESTAMP), so the clocks, names and time zones of hosts do not
// matter. The token is the last token plus one or the server's clock in microseconds, whichever is
// higher. The granting statement writes the token.
//
// With innodb_flush_log_at_trx_commit=1, and sync_binlog=1 if there is a binary
// log, a grant is on disk before it is answered, and the tokens have fencing class
// strict. Otherwise they have class durable. [Backend.Properties] says which.
//
// # What breaks it
//
//   - Asynchronous replication: a replica that is promoted may not know the
//     last grants. A second holder is then possible until the first holder's TTL
//     is over. Tokens keep rising if the two servers' clocks agree.
//   - A server clock that is turned forward ends leases early; their holders notice
//     at the next renewal. A clock that is turned back lengthens leases until
//     another owner asks for the lock; from then on, the lease ends within its TTL.
//   - An address that leads to two servers. A host stays at one of them while that
//     server serves, logs a warning, and fails its Check. But another host may stay at
//     the other server. Servers are told apart by server_uuid on MySQL. On MariaDB they
//     are told apart by host name, port and server_id, from 11.7 on by server_uid too.
//   - Galera and group replication: let all hosts use one node. If hosts write on several nodes, a
//     conflict is found at commit and the statement is repeated, which is safe but slow. Waiters on
//     other nodes are not woken: they ask for the lock once a second, without order. Waiters
//     behind a proxy that shares connections among clients do the same. Behind a load balancer a
//     host stays at one Galera node while that node serves. The next node may lag, so that a lease
//     seems missing; wsrep_sync_wait=7 makes a node catch up before it answers.
//   - Rows that an operator changes by hand.
//
// # Cost
//
//	operation            round trips   commits (fsyncs)
//	acquire              1             1
//	acquire, refused     1             0
//	renew                1             1
//	release              1             1
//	wake a waiter        1             0; on MariaDB part of the release
//	wait                 2             1; on MariaDB 1 round trip
//	grant after a wait   1             0; on MariaDB part of the wait
//	withdraw             0 or 1        0 or 1
//	inspect              1             0
//
// A row that has waiters or withdrawn owners needs a longer statement. The first statement that
// meets such a row costs one more round trip. So does an acquire that is alone in its statement, if
// this process held the lock before and another owner holds it now. Operations that come while
// others are under way share the next statement and its commit, up to 64 operations or 500
// renewals. So a busy host commits far less often than it locks. A withdrawal costs nothing if all
// requests of the owner were refused.
//
// A statement is no longer than the server's max_allowed_packet and the
// maxAllowedPacket in the address. Names, labels and values are written in hexadecimal.
// A value of 60 KiB takes 120 KiB, so about 100 such values fill MariaDB's default of
// 16 MiB. A value that is too long for any statement is refused as invalid.
//
// A row that another client's transaction keeps locked delays only operations
// on that row. A statement that waits for the row for 50 ms is killed, and its
// other operations are sent again. Locked rows are checked every 25 ms, all in
// one query (SKIP LOCKED), for up to Options.RequestTimeout.
//
// Waiters are in the row's queue, first in, first out over all hosts. Each waiter blocks in the
// server on its own connection; waiters beyond Options.WaitConnections ask every 15 to 45 ms. A
// release also grants the lock to the first waiter, usually in the same statement, for half a
// second (up to 2 s for a distant waiter). Then it wakes the waiter by a KILL QUERY, which finds
// the session by a randomly named user lock (GET_LOCK), so it hits no other session. The waiter
// learns how long its grant lasts, and core renews it. A waiter that does not use its grant delays
// the other waiters by half a second. But the release passes over a waiter whose process has given
// no sign of life for the last 0.6 s. A waiting process gives five signs a second, with a statement
// that changes no row. If GET_LOCK is refused, all waiters poll, every 15 to 45 ms at first and
// later every 120 to 360 ms, without order. Check then fails if WaitConnections allows blocked
// waiters.
//
// The row of a free lock keeps the last token. The row is purged when its last lease's end, its
// tombstones and its token are a day old. A token granted while the clock was ahead delays this.
//
// # Settings that matter
//
// max_connections must allow Connections + WaitConnections + 5 for every host. The 5 are two for
// withdrawals, two for statements that kill others, and one for signs of life. No dial is broken
// off, because a server counts aborted handshakes and in the end blocks the machine
// (max_connect_errors). An unneeded connection is kept for the next request. Every other setting
// that the statements rely on is set for each connection. So the server's settings and its
// init_connect do not matter. That covers sql_mode, completion_type, isolation and access mode,
// autocommit, character set, time zone and timestamp, lock waits of one second, no limits on the
// rows, time and safety of a statement, and no secondary engine. A transaction of init_connect is
// ended, and so are its table locks. The binary log must not have the format STATEMENT.
//
// # Rights
//
// The user needs SELECT, INSERT, UPDATE and DELETE on the table, and CREATE unless the table
// exists. "lockplugin-mysql ddl" prints a CREATE TABLE and a GRANT. GET_LOCK must be allowed, as in
// Percona XtraDB Cluster with pxc_strict_mode=PERMISSIVE. All hosts must use one account or have
// CONNECTION_ADMIN, because an account may wake only its own connections. A read-only server (a
// replica, or in a failover) gets no request, even if the account may write. Waiters go on waiting.
//
// # Where is what
//
//   - lock.go, acquire.go: the operations
//   - batcher.go: which operations share a statement; locked.go: operations on locked rows
//   - wait.go: the queue; signs.go: which waiters are alive
//   - owners.go: which owners need no tombstone
//   - backend.go: Open and Close; dial.go: connections; options.go: the options and the Spec
//   - table.go: the table, and which of its rows are purged
//
// The texts of all statements, and the rows that they return, are in
// internal/statement; connections, and what their errors mean, in internal/conn.
package mysql
