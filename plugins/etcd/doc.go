// Package etcd keeps locks in etcd.
//
// # What it guarantees
//
// A grant is one transaction that passes the cluster's consensus. A majority of members has it on
// disk before the caller gets it. No lock is granted twice or lost when a minority of members
// crashes or is cut off, members restart, or the leader changes. Tokens keep rising through these
// events. The waiters of all hosts get the lock in the order in which they came. A waiter whose
// process sends nothing for 2 s loses its place in the queue.
//
// # What breaks it
//
//   - A leader that stalls for longer than a TTL. When it continues, it may revoke leases that the
//     next leader has renewed (etcd-io/etcd#12528 and #15247). The lock is then granted again while
//     the holder's lease is valid. The holder's watch reports the loss, usually before the next
//     holder acts, and the resource can refuse the old token. A stall of only 2 s can end waiters'
//     entries in this way. It can also end a lock that a waiter was granted but has not renewed.
//   - A member that runs with --unsafe-no-fsync may forget what it has acknowledged. No client
//     can detect this.
//   - Addresses that lead to two clusters. A host that sees both clusters grants nothing (see
//     cluster.Cluster.Certain). If two hosts each see a different cluster, neither host notices.
//   - The program grpc-proxy. It answers some keepalives late, so the backend may mistake an old
//     answer for the answer to its last keepalive.
//   - A restored older snapshot brings back old leases and tokens, unless its revisions are bumped
//     (etcdutl snapshot restore --bump-revision). After a cluster was set up anew, without data,
//     the leases are gone. The new tokens are above the earlier tokens unless the first host that
//     uses the new cluster has a clock that is behind (see txn.Generation).
//   - A put that adds a queue entry and is sent again because no answer came. If the first copy
//     arrives after the owner has released the lock, it makes a lock that no process knows. This
//     lock lasts as long as the owner's process waits for any lock, unless an operator breaks it.
//   - As with every lease, a holder that is paused past its deadline does not know that it has lost
//     the lock. The resource can refuse the old token.
//   - After a change of leader the TTL of every lease starts anew, so a dead host's locks may
//     stay for one more TTL. This is safe but slow.
//
// # What it costs
//
// "1 and 1" means 1 round trip and 1 entry of the consensus, which a majority flushes to disk:
//
//	acquire             1 and 1, and a keepalive, which writes no entry and which
//	                    all acquires of one transaction share
//	refused acquire     the same, and 1 read if the holder's TTL is not known;
//	                    acquires that shared a transaction share 1 more read
//	renew               1 keepalive and 1 read at the same time, no entry;
//	                    100 locks share the read and about 1,000 the keepalive;
//	                    1 and 1 for the first renewal after a grant in the queue
//	release, proclaim   1 and 1
//	withdraw            1 and 1; 2 and 2 if another process has put the entry; and
//	                    a LeaseGrant for every 256 withdrawals, or every 10 s
//	release with Keep   1 and 1, and a LeaseGrant if no lease has that TTL
//	inspect             1 read, and 1 for the TTL
//	wait                1 and 1 for the queue entry; 1 watch, unless one of the same key
//	                    ended within the last second; 1 read if the watch may have missed
//	                    something; a keepalive every 500 ms for all waiters of a host
//	grant in the queue  none that a caller waits for; 1 and 1 in the background
//
// So a grant after a wait costs 2 entries if two hosts take turns: the queue entry and the release.
// With more hosts it costs 3, because each holder puts its entry again as a mark (see below). The
// first renewal costs one more entry, and so does an acquire that is refused before the wait. The
// next holder waits for only one of these entries, the release.
//
// Up to 120 operations that come at the same time share one transaction and its flush. The first
// acquire with each TTL makes an etcd lease, which costs 1 and 1 more. So do the first wait and the
// first acquire after a whole TTL without an acquire or a renewal.
//
// # The queue
//
// The queue of a lock consists of keys, called entries. An acquire puts an entry only if the queue
// is empty. A waiter puts its entry behind the others. The entry with the lowest create revision is
// the lock: its owner holds it. When that entry is deleted, for any reason, the next entry becomes
// the lock in the same revision. So a lock with waiters is never free.
//
//   - No two owners hold the lock at once. A new entry comes behind all others, and a former
//     holder cannot change another entry, because its requests name its own create revision.
//   - Tokens are create revisions. They rise, because each entry that becomes the lock
//     was put after every entry that was the lock before.
//   - A waiter watches the entry before its own. If that entry was the lock, its end grants the
//     lock to the waiter. The waiter knows that the entry was the lock if it was first when the
//     waiter came, or if its owner has put it again, as a mark. If not, the waiter asks the store.
//   - The waiters of a process share an etcd lease. A waiter's grant lasts for this lease's TTL.
//     The TTL begins when the last confirmed keepalive was sent. If the waiter learns of the grant
//     after more than half of the TTL, it asks the store.
//   - The first renewal moves the entry from the waiters' lease to another lease. If no renewal
//     comes, this process deletes the entry. So a frozen or lost host delays others by 2 s.
//   - A request without an answer may reach the store late. After a withdrawal, a key (the owner's
//     tombstone) makes etcd refuse a late put of an entry. A late move of an entry to another
//     lease is refused, because the entry is gone or no longer on the lease that the request names.
//
// # Leases
//
// Locks of one TTL share an etcd lease (see type leases; decision etcd-1 has the alternatives).
// Sharing has a cost: while some locks of a lease are renewed, etcd does not end the other
// locks. So the backend deletes each lock whose deadline has come without a renewal. If this
// process is killed, its locks last until one TTL after the last keepalive of the lease.
//
// etcd counts TTLs in whole seconds. The shortest TTL is 1.5 times the election timeout, rounded
// up: 2 s by default. etcd looks for expired leases twice a second. The backend refuses a TTL
// that etcd would round.
//
// # What it needs
//
// etcd 3.4 or later is needed. If etcd has users, the backend needs
// a role with readwrite on the keys that begin with the prefix:
//
//	etcdctl role grant-permission locks readwrite --prefix=true lockbench/
//
// No other program may use the prefix. A key with the base of all tokens always exists under the
// prefix. A concurrency.Mutex or Election named like the prefix would take this key for an earlier
// candidate.
//
// These settings matter: --election-timeout sets the shortest TTL. --max-txn-ops is 128 by default;
// a lower value, down to 8, makes smaller batches. --max-request-bytes limits published values.
// Compaction (--auto-compaction-retention) removes the old revision that every acquire and release
// leaves. Each process that has waited for a lock also leaves one or two keys in etcd's index,
// which every acquire of that lock reads until compaction.
//
// # Errors
//
// All requests go to one member, until it fails or does not answer although another member does.
// The backend then repeats the requests that do no harm if they are executed twice. The outcome of
// the other requests is unknown, because etcd may still execute them. So the caller withdraws the
// owner, and a tombstone makes etcd refuse the owner for a minute.
//
// A server whose database becomes full reports this even for requests that it has executed (see
// cluster.OutOfSpace). One read then finds out which requests were executed, so that no unknown
// entry is left. From then on the server refuses every put, so acquires fail at once, but held
// locks can still be renewed and released. A withdrawal deletes the owner's entries, but fails
// because it cannot put a tombstone. A lock that was granted in the queue is lost after 2 s,
// because its first renewal is refused. Errors from compaction, a change of leader and the restart
// of a member end by themselves.
//
// # Where is what
//
// The algorithm works on the keys in keys.go, which also describes their values:
//
//   - acquire.go, renew.go, release.go, waiter.go: one operation each; batch.go: many
//   - inspect.go: who holds a lock, what is published, and what operators ask
//   - entry.go, table.go: the entries that this process has put, and their timely end
//   - lease.go: which entries share a lease, and a lease's remaining time
//   - loss.go: which locks are lost
//   - backend.go, options.go: Open and Properties; the options and the Spec
//
// The packages below internal know nothing of locks: cluster has the members and their
// connections, txn sends transactions, keepalive sends keepalives, and watch has the watches.
package etcd
