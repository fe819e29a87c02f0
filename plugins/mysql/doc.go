// Package mysql keeps locks as rows of one table in MySQL 8.4 and later or
// MariaDB 10.6 and later. Its tests were run on MySQL 9.7.4 and on MariaDB
// 10.11.19 and 11.8.6.
//
// # Guarantee
//
// A lock is one row, named by its primary key, and the row alone decides. It is
// taken, renewed and released by single statements that compare owner and
// token under its row lock, and all times are the server's (UTC_TIMESTAMP): the
// clocks, names and time zones of hosts do not matter. The token is the higher
// one of the last token plus one and the server's clock in microseconds,
// written by the statement that grants.
//
// With innodb_flush_log_at_trx_commit=1, and sync_binlog=1 where there is a
// binary log, a grant is on disk before it is answered, and the tokens are
// fencing class strict; else durable. [Backend.Properties] says which.
//
// # What breaks it
//
//   - Asynchronous replication: a replica that is promoted may not know of the
//     last grants. A second holder is then possible until the first one's TTL is
//     over. Tokens go on rising if the two servers' clocks agree.
//   - A server's clock that is turned forward ends leases early; their holders
//     notice with the next renewal. One that is turned back lengthens what is
//     held, until somebody asks for it: then it ends within its TTL.
//   - An address that leads to two servers. A host stays at one of them while
//     that serves, warns, and its Check fails; but another host may stay at the other
//     one. Servers are told apart by server_uuid on MySQL; on MariaDB by host name,
//     port and server_id, from 11.7 on by server_uid too.
//   - Galera and group replication: let all hosts use one node. With several
//     writers a conflict is found at commit and the statement is repeated, which
//     is safe but slow, and waiters on other nodes are not woken: they ask every
//     second, without order. The same goes for a proxy that shares connections
//     among clients. Behind a balancer a host stays at one node of Galera while
//     that serves. The next one may lag: wsrep_sync_wait=7 has it catch up before it
//     answers, else a lease may be found missing that is there.
//   - Statements written by hand that change rows.
//
// # Cost
//
//	operation            round trips   commits (fsyncs)
//	acquire              1             1
//	acquire, refused     1             0
//	renew                1             1
//	release              1             1
//	wake a waiter        1             0, on MariaDB it is part of the release
//	wait                 2             1, on MariaDB 1 trip
//	be granted it then   1             0, on MariaDB it is part of the wait
//	withdraw             0 or 1        0 or 1
//	inspect              1             0
//
// A row that somebody waits for or was withdrawn from takes a longer statement;
// the first one to meet such a row pays a trip more, and so does who takes a row
// alone that the process has had before and somebody else has meanwhile. Operations that come while
// others are on their way share the next statement, up to 64 to a commit
// (renewals: 500), so a busy host commits far less often than it locks. A
// withdrawal costs nothing when the owner was only ever refused.
//
// A statement is no longer than the server's max_allowed_packet, and than
// maxAllowedPacket in the address. Names, labels
// and values are written in hexadecimal: a value of 60 KiB takes 120 KiB of it,
// and so 100 of them fill MariaDB's default of 16 MiB. A value for which there is no room alone is refused as invalid.
//
// A row that somebody else's transaction keeps locked holds up nothing but
// itself: statements that wait for it for 50 ms are killed, their other
// operations are sent again, and locked rows are looked at every 25 ms, all in
// one query (SKIP LOCKED), for as long as Options.RequestTimeout.
//
// Waiters stand in the row's queue, first in first out over all hosts, each
// blocked in the server on a connection of its own (Options.WaitConnections;
// those above it ask every 15 to 45 ms). A release grants the lock to the first one, for
// half a second, in the same statement, and wakes it by KILL
// QUERY of the session that holds a lock of a random name (GET_LOCK): no
// other session is ever killed, whatever server the statement gets to. The waiter learns
// how long it has the lock, and core renews it. One that does not come costs that half second,
// and nothing when its process has given no sign of life for the last 0.6 s: one that waits gives five
// a second, by a statement that changes no row. Where
// GET_LOCK is refused all waiters ask, every 15 ms at first and then every 120 to
// 360 ms, without order, and Check fails unless WaitConnections is none.
//
// A free row is kept for the sake of its token until both are a day old, and then
// purged: a token that was granted while the clock was ahead takes longer.
//
// # Settings that matter
//
// max_connections must hold Connections + WaitConnections + 5 of every host: two
// for withdrawals, two for statements that end others, one for signs of life. Connections are made at a pace of their own: one that is needed no longer
// when it is made is kept for the next request, because a server counts
// handshakes that are cut, and blocks the machine (max_connect_errors).
// Everything else that the statements rely on is set for each connection,
// whatever the server's settings and its init_connect say: sql_mode,
// completion_type, isolation and access mode, autocommit, character set, time
// zone and timestamp, lock waits of one second, and no limits on the rows, the
// time and the safety of a statement, nor another engine for it. A transaction
// or table locks that init_connect has begun are ended. The binary log must not
// be in format STATEMENT.
//
// # Rights
//
// SELECT, INSERT, UPDATE and DELETE on the table, and CREATE if it is not there
// yet: "lockplugin-mysql ddl" prints both. GET_LOCK must be allowed, which
// Percona XtraDB Cluster does with pxc_strict_mode=PERMISSIVE. All hosts must use one account, or
// have CONNECTION_ADMIN: an account may only wake its own connections. Nothing is
// asked of a server that is read-only, whatever the account may do there: it is
// a replica, or in a failover, and waiters go on waiting.
//
// # Where is what
//
//   - lock.go, acquire.go: the operations
//   - batcher.go: which share a statement; locked.go: what a locked row holds back
//   - wait.go: the queue; signs.go: who in it lives
//   - owners.go: who needs no tombstone
//   - backend.go: Open and Close; dial.go: connections; options.go: the options and the Spec
//   - table.go: the table, and which of its rows are purged
//
// The texts of all statements, and the rows that they return, are in
// internal/statement; connections, and what their errors mean, in internal/conn.
package mysql
