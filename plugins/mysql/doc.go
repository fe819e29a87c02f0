// Package mysql keeps locks as rows of one table in MySQL 8.4 and later or MariaDB 10.6 and later.
// Its tests were run on MySQL 9.7.4 and MariaDB 10.11.19 and 11.8.6.
//
// # Guarantee
//
// A lock is one row, whose primary key is the lock's name. Only this row names the lock's holder.
// One SQL statement takes, renews or releases the lock. The statement checks owner and token while
// it keeps the row locked. All times are the server's (UTC_TIMESTAMP), so the clocks, names and
// time zones of hosts do not matter. A new token is the last token plus one, or the server's clock
// in microseconds if that is higher. The statement that grants the lock writes the token.
//
// With innodb_flush_log_at_trx_commit=1, and sync_binlog=1 if there is a binary log, a grant is on
// disk before the caller gets it, and tokens have fencing class strict. Otherwise tokens have class
// durable. [Backend.Properties] returns the class.
//
// # What breaks it
//
//   - Asynchronous replication: a replica that is promoted may not know the
//     last grants. A second holder is then possible until the first holder's TTL
//     is over. Tokens keep rising if the two servers' clocks agree.
//   - A server clock that is turned forward ends leases early. Their holders notice this at the
//     next renewal. A clock that is turned back makes a lease longer until another owner asks for
//     the lock. From then on, the lease ends within its TTL.
//   - An address that leads to two servers. A host uses only one of the servers while that server
//     serves requests. The host logs a warning, and its Check fails. But another host may use the
//     other server. A MySQL server is recognized by its server_uuid. A MariaDB server is recognized
//     by host name, port and server_id, and from version 11.7 on also by server_uid.
//   - Galera and group replication: let all hosts use one node. If hosts write on several nodes, a
//     conflict is found at commit and the statement is repeated, which is safe but slow. A release
//     does not wake waiters on other nodes, so those waiters ask for the lock about once a second,
//     without order. Waiters behind a proxy that shares connections among clients do the same.
//     Behind a load balancer a host stays at one Galera node while that node serves requests. The
//     host's next node may lag and not know a lease yet. With wsrep_sync_wait=7, a node catches up
//     before it answers.
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
// meets such a row costs one more round trip. An acquire that is alone in its statement also costs
// one more round trip, if this process held the lock earlier and another owner holds it now.
// Operations that arrive while other statements are under way share the next statement and its
// commit. A statement takes at most 64 operations, or 500 renewals. So a busy host needs far fewer
// commits than operations. A withdrawal costs nothing if all requests of the owner were refused.
//
// The server's max_allowed_packet and the maxAllowedPacket in the address limit the length of a
// statement. Names, labels and values are written in hexadecimal. A value of 60 KiB takes 120 KiB
// of a statement. A value that is too long for any statement is refused as invalid.
//
// A row that another client's transaction keeps locked delays only operations on that row. If a
// statement with several operations has waited 50 ms for that row (renewals wait up to 500 ms), the
// backend kills the statement and sends its operations on other rows again. For up to
// Options.RequestTimeout, it asks the server every 25 ms which rows are still locked (SKIP LOCKED).
//
// A lock's row has one first-in, first-out queue for the waiters of all hosts. Each waiter runs a
// sleeping statement on a separate connection. Waiters beyond Options.WaitConnections poll every 15
// to 45 ms. A release also grants the lock to the first waiter, usually in the same statement. The
// grant lasts half a second, or up to 2 s for a distant waiter. After the commit, the release wakes
// the waiter by a KILL QUERY. A user lock (GET_LOCK) with a random name identifies the waiter's
// session, so the KILL hits no other session. The waiter learns when its grant ends, and core
// renews the grant. A waiter that does not use its grant delays the other waiters by half a second.
// But the release skips a waiter whose process has given no sign of life for 0.6 s. A waiting
// process gives five signs of life a second, with a statement that changes no row. If the server
// refuses GET_LOCK, all waiters poll, every 15 to 45 ms at first and later every 120 to 360 ms,
// without order. In this case Check fails, unless WaitConnections makes all waiters poll.
//
// The row of a free lock keeps the last token. The row is deleted once its token, its tombstones
// (withdrawn owners) and last lease's end are a day old. A token from a fast clock delays this.
//
// # Settings that matter
//
// max_connections must allow Connections + WaitConnections + 5 for every host. Of the 5, two are
// for withdrawals, two for statements that kill other statements, and one for signs of life. The
// backend completes each dial, because a server counts aborted handshakes, and blocks the machine
// after max_connect_errors of them. If a new connection is not needed, the backend keeps it for
// later. Each connection sets the session settings that the statements need, whatever the server's
// settings and init_connect are. These are sql_mode, completion_type, isolation and access mode,
// autocommit, character set, time zone and timestamp. The connection also limits a lock wait to one
// second, and turns off the secondary engine, sql_safe_updates and the limits on a statement's rows
// and time. It ends any transaction or table lock that init_connect left open. binlog_format must
// not be STATEMENT.
//
// # Rights
//
// The user needs SELECT, INSERT, UPDATE and DELETE on the table, and CREATE unless the table
// exists. "lockplugin-mysql ddl" prints CREATE TABLE and GRANT. GET_LOCK must be allowed. Percona
// XtraDB Cluster allows it with pxc_strict_mode=PERMISSIVE. All hosts must use one account, or
// their accounts need CONNECTION_ADMIN to wake each other's waiters. No request goes to a read-only
// server, such as a replica, even if the account may write. Waiters go on waiting.
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
// Package internal/statement builds all statements and reads the rows that they return. Package
// internal/conn opens connections and classifies their errors.
package mysql
