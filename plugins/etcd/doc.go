// Package etcd keeps locks in etcd.
//
// # What it guarantees
//
// A grant is one transaction of the cluster's consensus, on the disks of a
// majority before it is answered. No crash or partition of a minority of members,
// no restart and no change of leader grants a lock twice or loses one. Tokens rise
// through all of that. Waiters of all hosts are granted in their order: one loses
// its queue entry when its process is silent for 2 s.
//
// # What breaks it
//
//   - A leader that stalls for longer than a TTL: when it goes on, it may
//     revoke leases that were renewed at its successor (etcd-io/etcd#12528 and
//     #15247). The lock is granted again while the holder's lease is valid. The
//     holder learns of it by its watch, mostly first; the token shows it to the
//     resource. After 2 s the same happens to those who wait, whose order is lost,
//     and to a lock that was granted in the queue and not renewed yet.
//   - A member that runs with --unsafe-no-fsync may forget what it has
//     promised; no client can tell.
//   - Addresses that lead to two clusters. A host that sees both grants nothing
//     (see cluster.Cluster.Certain); two hosts that see one each do not notice.
//   - grpc-proxy, which answers keepalives in its own time, and so perhaps an
//     earlier one than the last.
//   - Going back to an older snapshot brings back old leases and old tokens,
//     unless its revisions are bumped (etcdutl snapshot restore --bump-revision).
//     After a cluster was set up anew, without data, leases are gone, and tokens
//     go on above the earlier ones as long as the clock of the first host to use
//     it is not behind (see txn.Generation).
//   - Like every lease: a holder that is paused past its deadline does not
//     know. The token shows it to the resource.
//   - A change of leader starts the TTL of every lease anew, so that a dead
//     host's locks may take up to one more TTL. That is safe, and late.
//
// # What it costs
//
// Round trips, and consensus entries, each of which is an fsync on a majority:
//
//	acquire             1 and 1; a keepalive goes beside it, which is no entry;
//	                    all acquires of one transaction share it
//	refused acquire     the same, and 1 read for the TTL when it is not known;
//	                    1 more read, for all, when it shared its transaction
//	renew               1 keepalive and 1 read at the same time, no entry;
//	                    100 locks share the read and about 1,000 the keepalive;
//	                    1 and 1 the first time after a grant in the queue
//	release, proclaim   1 and 1
//	withdraw            1 and 1, 2 and 2 of what another process has put, and a
//	                    LeaseGrant for every 256 and every 10 s
//	release with Keep   1 and 1, and a LeaseGrant if there is none of that TTL
//	inspect             1 read, and 1 for the TTL
//	wait                1 and 1 for the queue entry; 1 watch, unless one of the same key
//	                    ended within the last second; 1 read if the watch may have missed
//	                    something; a keepalive every 500 ms for all
//	grant in the queue  none that anybody waits for; 1 and 1 beside the caller's work
//
// So a grant after a wait is 2 entries where two hosts take turns: the queue entry and
// the release. With more hosts it is 3, with the mark that it is the lock. A lock that
// is held long enough to be renewed costs one more, and so does a first acquire before
// the wait. Between a release and the next grant is one entry, the release.
//
// Operations that come at the same time, up to 120, share one transaction and
// its fsync. The first acquire with a TTL, and the first after a time as long
// as the TTL without one, makes a lease: 1 and 1 more. So does the first wait.
//
// # The queue
//
// An acquire that finds no entry of a name puts one; a waiter that finds others
// puts one behind them. The entry with the lowest create revision is the lock.
// So when that entry ends, by any cause, the next one is granted the lock in
// the same revision, and a lock with waiters is never free.
//
//   - No two owners hold it at once: entries come only behind all others, and a compare
//     of create revision and generation keeps a former holder from touching another entry.
//   - Tokens are create revisions, and rise, because an entry that becomes the first was
//     put later than all that were first before it.
//   - A waiter that sees the end of the entry before its own, and knows that this was
//     the lock, is the first. It knows by the mark, or because there was no entry before
//     that one when it came; else it asks.
//   - A waiter may see that end late, but its own entry lasts for the TTL of the waiters'
//     lease, from when the last confirmed keepalive of that lease was sent. The grant
//     lasts as long; when little of it is left, the waiter asks instead.
//   - An entry is on that lease until its first renewal, and this process deletes it when
//     no renewal comes. So a host that is frozen or lost costs 2 s.
//   - A request without an answer may be late. A late put of an entry finds the tombstone
//     of its owner; a late move finds the entry on another lease.
//
// # Leases
//
// Locks of one TTL share a lease (see leases, and decision etcd-1 for the other ways).
// What sharing costs is that etcd does not end a lock that is not renewed while others
// on its lease are. The backend deletes it then, at its deadline. Only if the whole
// machine is lost does such a lock last longer: until the TTL counted from that
// machine's last keepalive, which is never longer than the TTL after its loss.
//
// etcd counts TTLs in whole seconds, has a minimum of 1.5 times its election
// timeout (2 s as it is set up by default), and looks for expired leases twice a
// second. A TTL that it would round is refused.
//
// # What it needs
//
// etcd 3.4 or later. With users, a role with readwrite on the keys that begin
// with the prefix:
//
//	etcdctl role grant-permission locks readwrite --prefix=true lockbench/
//
// The prefix is for this backend alone. A concurrency.Mutex or Election of that
// name would take the key of tokens' base, which stays, for one who came before it.
//
// Settings that matter: --election-timeout for the least TTL, --max-txn-ops (128;
// less makes smaller batches, down to 8), --max-request-bytes when large values are
// published, and compaction (--auto-compaction-retention): every acquire and
// release leaves a revision, and each process that has waited for a lock one or
// two keys in the index, which acquires of that lock meet until then.
//
// # Errors
//
// All requests go to one member until it fails or does not answer what another
// one answers. Those that may be done twice are then sent again; of the others the
// outcome is unknown, because etcd may yet do them: the caller withdraws, and a
// tombstone refuses the owner for a minute.
// A server whose database becomes full says so of requests that it has done, too
// (see cluster.OutOfSpace). One read tells which these are, so that nothing
// is left behind that nobody knows of. From then on it refuses what puts a key, and
// acquires fail at once. Locks that are held are renewed and released; a
// withdrawal deletes what the owner has, and fails for want of a tombstone. A lock that
// is granted in the queue then is lost after 2 s: its first renewal is refused.
// Compaction, a change of leader and the restart of a member are passing.
//
// # Where is what
//
// The algorithm is on the keys of keys.go, which also has what is in their values:
//
//   - acquire.go, renew.go, release.go, waiter.go: one operation each; batch.go: many
//   - inspect.go: who holds a lock, what is published, and what operators ask
//   - entry.go, table.go: what this process knows of its entries, and ends in time
//   - lease.go: which of them share a lease, and what is left of one
//   - loss.go: which locks are lost
//   - backend.go, options.go: Open and Properties; the options and the Spec
//
// The packages below internal know nothing of locks: cluster has the members and their
// connections, txn sends transactions, keepalive keepalives, and watch watches.
package etcd
