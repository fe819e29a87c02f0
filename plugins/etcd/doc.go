// Package etcd keeps locks in etcd.
//
// # What it guarantees
//
// A grant is one transaction that passes the cluster's consensus. A majority of members has the
// grant on disk before the caller learns of the grant. No lock is lost or granted twice if a
// minority of members crashes or is cut off, if members restart, or if the leader changes. Tokens
// keep rising, too. The waiters of all hosts get the lock in the order in which they entered the
// queue. A waiter whose process sends nothing for 2 s loses its place in the queue.
//
// # What breaks it
//
//   - The leader stalls for longer than a TTL. When this leader runs again, it may revoke leases
//     that the next leader has renewed (etcd-io/etcd#12528 and #15247). The lock is then granted
//     again while the holder's lease is valid. The holder's watch reports the loss, usually before
//     the next holder acts, and the resource can refuse the old token. In this way, a stall of only
//     2 s can end queue entries, and locks that were granted in the queue and not yet renewed.
//   - A member with --unsafe-no-fsync may lose acknowledged writes. No client can detect this.
//   - The addresses lead to two clusters. If a host sees both clusters, its TryAcquire fails (see
//     cluster.Cluster.Certain). If two hosts each see a different cluster, neither host notices.
//   - The program grpc-proxy answers some keepalives late, so the backend may mistake an old answer
//     for the answer to its last keepalive.
//   - A restored older snapshot brings back old leases and tokens, unless the restore bumps the
//     revisions (etcdutl snapshot restore --bump-revision). A cluster that was set up anew, without
//     data, has no leases. Its tokens are above the old cluster's tokens, unless the clock of the
//     first host that uses the new cluster is behind (see txn.Generation).
//   - The put of a queue entry gets no answer, and the backend sends it again. If the first put
//     arrives after the owner has released the lock, it makes a lock that no process knows. This
//     lock lasts as long as the owner's process waits for any lock, unless an operator breaks it.
//   - As with every lease, a holder that is paused past its deadline does not know that it has lost
//     the lock. The resource can refuse the old token.
//   - After a change of leader the TTL of every lease starts anew, so a dead host's locks may
//     stay for one more TTL. This is safe but slow.
//
// # What it costs
//
// "1 and 1" means 1 round trip and 1 log entry, which a majority of members flushes to disk:
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
//	wait                1 and 1 for the queue entry, or 1 read if it exists; 1 watch, unless
//	                    one of the same key ended within the last second; 1 read if the watch may
//	                    have missed something; a keepalive every 500 ms for all waiters of a host
//	grant in the queue  none that a caller waits for; 1 and 1 in the background
//
// If two hosts take turns, a grant after a wait costs 2 log entries: one for the put of the queue
// entry and one for the release. With more hosts, the grant costs 3, because each holder puts its
// queue entry again as a mark (see below). The first renewal costs 1 more, and so does an acquire
// that is refused before the wait. The next holder waits only for the log entry of the release.
//
// Up to 120 operations that come at the same time share one transaction and its flush. The first
// acquire with each TTL makes an etcd lease, which costs 1 more round trip and log entry. The first
// wait also makes a lease, and so does the first acquire after a TTL without acquires and renewals.
//
// # The queue
//
// The queue of a lock consists of keys, called entries. An acquire puts an entry only if the queue
// is empty. A waiter puts its entry at the end. The owner of the entry with the lowest create
// revision holds the lock, so this entry is called the lock. When it is deleted, for any reason,
// the next entry becomes the lock in the same revision. So a lock with waiters is never free.
//
//   - No two owners hold the lock at once. A new entry comes last. A former holder cannot change
//     another owner's entry, because its requests name the create revision of its own entry.
//   - Tokens are made from create revisions. They rise, because each entry that becomes the lock
//     was put after all entries that were the lock earlier.
//   - A waiter watches the entry in front of its own. If that entry was the lock, its end grants
//     the lock to the waiter. The waiter knows that the entry was the lock if it was first when the
//     waiter came, or if its owner has put it again, as a mark. Otherwise it asks the store.
//   - The waiters of a process share an etcd lease. A waiter's grant lasts for this lease's TTL.
//     The TTL begins when the last confirmed keepalive was sent. A waiter that learns of the grant
//     after more than half of the TTL asks the store.
//   - The first renewal moves the entry from the waiters' lease to another lease. If no renewal
//     comes, the waiter's process deletes the entry. So a frozen or lost host delays others by 2 s.
//   - A request that got no answer may arrive late. A withdrawal puts a key (the owner's
//     tombstone), so that etcd refuses a late put of the owner's entry. A late move of an entry to
//     another lease is refused, because the entry is no longer on the lease that the request names.
//
// # Leases
//
// Locks with the same TTL share an etcd lease (see type leases; decision etcd-1 has alternatives).
// Sharing has a cost: while some locks on a lease are renewed, etcd does not end the other locks.
// So the backend deletes each lock whose deadline has come without a renewal. If the backend's
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
// prefix. If etcd's type concurrency.Mutex or concurrency.Election were used with this prefix, it
// would take that key for an earlier candidate.
//
// These settings matter: --election-timeout sets the shortest TTL. --max-txn-ops is 128 by default;
// a lower value, down to 8, makes smaller batches. --max-request-bytes limits published values.
// Compaction (--auto-compaction-retention) removes the old revision that every acquire and release
// leaves. Each process that has waited for a lock leaves one or two deleted keys in etcd's index,
// which every acquire of that lock reads until compaction.
//
// # Errors
//
// All requests go to one member, until that member fails, or does not answer while another member
// answers. The backend then repeats the requests that do no harm if they are executed twice. The
// outcome of the other requests is unknown, because etcd may still execute them. So the caller
// withdraws the owner, and a tombstone makes etcd refuse the owner for a minute.
//
// A server whose database becomes full reports this even for requests that it has executed (see
// cluster.OutOfSpace). The backend then reads which requests were executed, so that it knows all
// its entries. From then on the server refuses every put. So acquires fail at once, but held locks
// can still be renewed and released. A withdrawal deletes the owner's entries, but returns an error
// because it cannot put a tombstone. A lock that was granted in the queue is lost after 2 s,
// because its first renewal is refused. Errors from compaction, a change of leader and the restart
// of a member end by themselves.
//
// # Where is what
//
// keys.go describes the keys in etcd and their values. The other files:
//
//   - acquire.go, renew.go, release.go, waiter.go: one operation each; batch.go: many at once
//   - inspect.go: Inspect, Proclaim, Observe, and the commands of operators (List and Break)
//   - entry.go, table.go: the entries that this process has put, and their deletion in time
//   - lease.go: which entries share a lease, and a lease's remaining time
//   - loss.go: which locks are lost
//   - backend.go, options.go: Open and Properties; the options and the Spec
//
// The packages in the directory internal know nothing of locks. Package cluster connects to the
// members, txn sends transactions, keepalive sends keepalives, and watch opens watches.
package etcd
