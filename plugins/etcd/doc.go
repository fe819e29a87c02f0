// Package etcd keeps locks in etcd.
//
// # What it guarantees
//
// A grant is one transaction of the cluster's consensus. It is on the disks of a
// majority of members before the caller gets it. No crash or partition of a minority of
// members, no restart and no change of leader grants a lock twice or loses a lock.
// Tokens rise through all of these events. Waiters of all hosts get the lock in their
// order. A waiter loses its queue entry when its process is silent for 2 s.
//
// # What breaks it
//
//   - A member that leads and stalls for longer than a TTL. When it continues, it may
//     revoke leases that the next leader has renewed (etcd-io/etcd#12528 and #15247). The
//     lock is then granted again while the holder's lease is valid. The holder learns of
//     the loss by its watch, usually before the next holder acts, and the resource can
//     refuse the old token. After a stall of 2 s, waiters lose their order in the same way,
//     and a lock that was granted in the queue and not renewed yet is lost.
//   - A member that runs with --unsafe-no-fsync may forget what it has
//     acknowledged; no client can detect this.
//   - Addresses that lead to two clusters. A host that sees both clusters grants nothing
//     (see cluster.Cluster.Certain). Two hosts that see one cluster each do not notice.
//   - The program grpc-proxy. It answers keepalives at its own pace, so an
//     answer may be to an earlier keepalive than the last one.
//   - A restored older snapshot brings back old leases and tokens, unless its
//     revisions are bumped (etcdutl snapshot restore --bump-revision). After
//     a cluster was set up anew, without data, the leases are gone. The new
//     tokens are above the earlier tokens if the clock of the first host that
//     uses the new cluster is not behind (see txn.Generation).
//   - As with every lease, a holder that is paused past its deadline does not
//     know that it has lost the lock. The resource can tell by the token.
//   - After a change of leader the TTL of every lease starts anew, so a dead
//     host's locks may stay for one more TTL. This is safe but slow.
//
// # What it costs
//
// The costs are round trips and consensus entries. Each entry is an fsync on a majority:
//
//	acquire             1 and 1; besides, a keepalive, which is no entry;
//	                    all acquires of one transaction share it
//	refused acquire     the same, and 1 read for the TTL when it is not known;
//	                    1 more read, for all, when it shared its transaction
//	renew               1 keepalive and 1 read at the same time, no entry;
//	                    100 locks share the read and about 1,000 the keepalive;
//	                    1 and 1 the first time after a grant in the queue
//	release, proclaim   1 and 1
//	withdraw            1 and 1; 2 and 2 if another process put it; and a
//	                    LeaseGrant for every 256, or every 10 s
//	release with Keep   1 and 1, and a LeaseGrant if no lease has that TTL
//	inspect             1 read, and 1 for the TTL
//	wait                1 and 1 for the queue entry; 1 watch, unless one of the same key
//	                    ended within the last second; 1 read if the watch may have missed
//	                    something; a keepalive every 500 ms for all
//	grant in the queue  none that a caller waits for; 1 and 1 in the background
//
// So a grant after a wait costs 2 entries if two hosts take turns: the queue entry and the
// release. With more hosts it costs 3, because the holder marks its lock. A lock that is
// held long enough to be renewed costs one more entry, and so does a first acquire before
// the wait. From a release to the next grant there is only one entry, the release.
//
// Operations that come at the same time, up to 120, share one transaction and its fsync.
// The first acquire with a TTL makes a lease, which costs 1 and 1 more. So does the first
// acquire after a TTL without an acquire or a renewal, and the first wait.
//
// # The queue
//
// An acquire that finds no entry of a name puts an entry (a key). A waiter that
// finds entries puts its entry behind them. The entry with the lowest create
// revision is the lock. When that entry ends, for any reason, the next entry
// becomes the lock in the same revision. So a lock with waiters is never free.
//
//   - No two owners hold the lock at once: a new entry comes behind all others, and a former holder
//     cannot touch another entry, because its requests compare create revision and generation.
//   - Tokens are create revisions. They rise, because each entry that becomes the lock
//     was put after every entry that was the lock before.
//   - A waiter that sees the end of the entry before its own, and knows that this entry
//     was the lock, is the first. It knows that by the mark, or because no entry was
//     before that entry when the waiter came. Otherwise it asks the store.
//   - A waiter may learn late that it is the first, but its entry and its grant last for
//     the TTL of the waiters' lease, counted from when the last confirmed keepalive of that
//     lease was sent. When little of that time is left, the waiter asks the store.
//   - An entry is on the waiters' lease until its first renewal moves it, and this
//     process deletes it if no renewal comes. So a frozen or lost host costs 2 s.
//   - A request without an answer may reach the store late. After a withdrawal, a late put of an
//     entry finds the tombstone of its owner. A late move finds the entry on another lease.
//
// # Leases
//
// Locks of one TTL share a lease (see type leases; decision etcd-1 has the
// alternatives). Sharing has a cost: while some locks of a lease are renewed,
// etcd does not end the others. So the backend deletes each lock whose deadline
// has come without a renewal. If this process is killed, nobody deletes the lock,
// and it lasts until one TTL after the last keepalive of the lease.
//
// etcd counts TTLs in whole seconds. The shortest TTL is 1.5 times the election
// timeout, 2 s by default. etcd looks for expired leases twice a second. The
// backend refuses a TTL that etcd would round.
//
// # What it needs
//
// etcd 3.4 or later is needed. If etcd has users, the backend needs a role with
// readwrite on the keys that begin with the prefix:
//
//	etcdctl role grant-permission locks readwrite --prefix=true lockbench/
//
// Only this backend may use the prefix. The key of the token base always exists, and a
// concurrency.Mutex or Election named like the prefix would take it for an earlier candidate.
//
// Settings that matter: --election-timeout sets the least TTL. --max-txn-ops is 128; a lower
// value, down to 8, makes smaller batches. --max-request-bytes matters when large values are
// published. Compaction (--auto-compaction-retention) matters because every acquire and release
// leaves a revision. Each process that has waited for a lock also leaves one or two keys in the
// index, and acquires of that lock read these keys until compaction.
//
// # Errors
//
// All requests go to one member, until it fails or does not answer a question that
// another member answers. Requests that may be done twice are then sent again. The
// outcome of other requests is unknown, because etcd may still do them, so the caller
// withdraws, and a tombstone refuses the owner for a minute. A server whose database
// becomes full reports that even for requests that it has executed (see
// cluster.OutOfSpace). One read finds out which requests were done, so that no unknown
// entry is left behind. From then on the server refuses every put, and acquires fail at
// once. Held locks can still be renewed and released. A withdrawal deletes the owner's
// entries, but fails because it cannot put a tombstone. A lock granted in the queue is
// then lost after 2 s, because its first renewal is refused. Compaction, a change of
// leader and the restart of a member are temporary.
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
