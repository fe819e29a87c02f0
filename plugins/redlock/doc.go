// Package redlock keeps locks on 3, 5, 7 or 9 independent Redis or Valkey
// masters (nodes). An owner has a lock if a majority of the nodes granted it.
//
// # The algorithm
//
// This is the algorithm that the Redis manual describes on the page "Distributed Locks with Redis"
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/). An attempt asks all
// nodes at the same time for the lock by SET NX PX, and each node must answer within NodeTimeout.
// The attempt succeeds if a majority granted the lock and some of the TTL is left. The time left is
// the TTL minus the elapsed time, a hundredth of the TTL and 2 ms. The last two are subtracted
// because clocks differ in speed. A failed attempt is undone on every node, and package core
// retries after a random delay. A renewal succeeds if a majority still has the lease. A grant,
// renewal or release returns when a majority has answered. The other nodes execute it later.
//
// A node that does not answer in time is left out of every operation until it answers again. So
// operations wait for a dead node only once, for one NodeTimeout. When the node answers again, it
// first gets the requests that it missed and that end a lease or an attempt. All requests for votes
// to one node go over one connection, in order. Requests made at the same time share a script.
//
// After a majority has renewed a lease, the lease is copied to nodes where the lock is free, and
// these nodes vote for the next renewal. So a minority never revives a lost lease.
//
// # What it was criticised for
//
// Martin Kleppmann's article "How to do distributed locking" (2016) makes two points. The lock
// depends on clocks and bounded delays. It also has no token by which a resource could refuse a
// holder that has lost the lock. Salvatore Sanfilippo's reply "Is Redlock safe?" discusses both
// points. The manual page names a third point: a node that restarts without its data may grant a
// lock a second time. This package changes two things.
//
//   - Tokens. The token of a grant is higher than all tokens that a majority of nodes has seen.
//     Before the caller gets the grant, the token is written to a majority of nodes, and only where
//     the grant still exists. A node's token counter is never below the node's clock in
//     microseconds. So a lock's tokens rise even when nodes lose their data, if the nodes' clocks
//     differ by less than MaxTTL. A holder that was paused may write after its deadline. A resource
//     that checks tokens refuses such a write once it has seen the next holder's token.
//   - Quarantine. A node's votes count only while its hash "~redlock" has the run id of its server.
//     Each script compares the hash with the run id that was read when the connection was opened.
//     After a restart or FLUSHALL the hash does not match. The node's votes then do not count for
//     the time MaxTTL, because leases that it had granted may last that long. This time is over
//     when one host has watched the node for MaxTTL. It is also over when the node's clock and the
//     clocks of a majority have advanced by MaxTTL since the times that were recorded on the node.
//     TTLs above MaxTTL are refused. All hosts must use the same MaxTTL.
//
// Two weaknesses remain. If the clocks of a majority jump ahead, leases expire early, and two
// holders may believe in their leases at once. And a holder that is paused past its deadline does
// not know that it has lost the lock. In both cases only tokens can protect the resource. Without a
// check of tokens, this lock avoids duplicate work but does not protect data. Besides, FLUSHALL or
// Break on a majority of nodes ends a lease that has time left.
//
// A new set of nodes is in quarantine too. "lockplugin-redlock init" lets the nodes vote at
// once. The command fails if only some of the nodes vote, or if they vote with another MaxTTL.
//
// # Waiting
//
// If each node had its own queue of waiters, nodes might vote for different waiters, and none would
// get a majority. So one node has the queue of a lock: the first voting node in an order that
// depends on the lock's name. The other nodes only vote. When the lock is free on a majority, the
// first waiter is woken by pub/sub. Waiters usually get the lock in order. But if the node with the
// queue is unreachable, another owner that gets a majority overtakes them.
//
// # Cost
//
// A round sends one script to every node. A script carries up to 64 operations of a batch.
//
//	acquire    1 round; 2 when another host's grant just made the token too low;
//	           2 when others wait for the lock; 1 more to undo a failed attempt
//	renew      1 round; 2 requests more, later, for each node without the lease
//	release    1 round; 1 more request to the node with the queue to wake a waiter
//	proclaim   1 round
//	inspect    1 round, which waits for the votes of all nodes
//	observe    1 inspect each 100 ms
//	wait       1 request to the node with the queue each second
//
// # Rights and settings
//
// Every node must be a master with maxmemory-policy noeviction. The backend uses no other nodes. An
// ACL user needs the commands that the redis backend needs, and the key "~redlock" beside the keys
// with the prefix. A node without appendonly loses its leases in a restart, which is safe because
// of quarantine. A node with appendonly goes into quarantine after a restart too.
//
// # Where is what
//
//   - acquire.go, renew.go, release.go, wait.go: the operations
//   - inspect.go: a lock's holder, its published value, and methods for operators
//   - operation.go: what all operations share; quorum.go: votes, and when they are a majority
//   - node.go: one node, its queue of requests, and the requests that it gets again
//   - connection.go: a node's connection, and the scripts, which are in the folder lua
//   - quarantine.go: whether a node may vote
//   - backend.go: Open and Close; check.go: Check, Watch and Properties
//   - options.go: the options and the Spec
package redlock
