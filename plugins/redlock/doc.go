// Package redlock keeps locks on 3, 5, 7 or 9 independent Redis or Valkey masters (nodes). An owner
// holds a lock if a majority of the nodes has granted it to the owner.
//
// # The algorithm
//
// This package implements the algorithm of the page "Distributed Locks with Redis" in the Redis
// manual (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/). A host asks
// all nodes at the same time for the lock, by SET NX PX. Each node must answer within NodeTimeout.
// The attempt succeeds if a majority grants the lock while some of the TTL is left. A hundredth of
// the TTL and 2 ms do not count as left, because clocks differ in speed. If the attempt fails, the
// host undoes it on every node, and package core retries after a random delay. A renewal succeeds
// if a majority still has the lease. A grant, a renewal and a release return when a majority has
// answered. The other nodes execute the request later.
//
// If a node does not answer in time, a host leaves it out of all operations until it answers again.
// So operations wait for a dead node only once, for NodeTimeout. When the node answers again, it
// first gets the missed requests that end a lease or an attempt. A host sends all requests for
// votes to a node over one connection, in order. Requests made at the same time share a script.
//
// A lease is copied to nodes where the lock is free, but only after a majority has granted or
// renewed it. These nodes vote for the next renewal. So a minority never revives a lost lease.
//
// # What it was criticised for
//
// Martin Kleppmann's article "How to do distributed locking" (2016) makes two points. The lock
// depends on clocks and bounded delays. The lock also has no token by which a resource could refuse
// a holder that has lost the lock. Salvatore Sanfilippo's reply "Is Redlock safe?" discusses both
// points. The manual page names a third point: a node that restarts without its data may grant a
// lock a second time. This package adds two things to the algorithm.
//
//   - Tokens. The token of a grant is higher than all tokens that a majority of nodes has seen.
//     Before the caller gets the grant, a majority of nodes must store the token while they still
//     have the grant. A node's token counter is never below the node's clock in microseconds. So if
//     the nodes' clocks differ from each other by less than MaxTTL, a lock's tokens rise even if
//     nodes lose their data. A paused holder may write to a resource after its deadline. A resource
//     that checks tokens refuses such a write after it has seen a higher token.
//   - Quarantine. A node's votes count only while the node's hash "~redlock" has the run id of its
//     server. Each script compares the hash with the run id that was read when the connection was
//     opened. After a restart or FLUSHALL, the hash lacks this run id. The node's votes then do not
//     count for the time MaxTTL, because leases that it has lost may last that long. This
//     quarantine ends when one host has watched the node for MaxTTL. It also ends when the clocks
//     of the node and of a majority have advanced by MaxTTL since the recorded start. TTLs above
//     MaxTTL are refused. All hosts must use the same MaxTTL.
//
// Two weaknesses remain. If the clocks of a majority jump ahead, leases expire early, and two
// owners may believe at the same time that they hold the same lock. A holder that is paused past
// its deadline does not know that it has lost the lock. In both cases, only a check of tokens
// protects the resource. Without this check, the lock avoids duplicate work but does not protect
// data. An operator can also end a lease early, by Break or by FLUSHALL on a majority of nodes.
//
// New nodes are in quarantine too. The command "lockplugin-redlock init" lets them vote at once. It
// fails if only some of the nodes vote already, or if they vote with another MaxTTL.
//
// # Waiting
//
// If a lock had a queue of waiters on each node, nodes might vote for different waiters, and no
// waiter would get a majority. So one node has the queue of a lock: the first voting node in an
// order that depends on the lock's name. The other nodes only vote. When the lock is free on a
// majority, the first waiter is woken by pub/sub. Waiters usually get the lock in order. But while
// the node with the queue is unreachable, another owner may get a majority before the waiters.
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
// Every node must be a master with maxmemory-policy noeviction. An ACL user needs the same rights
// as for the redis backend, and also the right to use the key "~redlock". A node without appendonly
// loses its leases in a restart, which is safe because of quarantine. A node with appendonly goes
// into quarantine after a restart too.
//
// # Where is what
//
//   - acquire.go, renew.go, release.go and wait.go have the operations
//   - inspect.go has methods for holders, for published values, and for operators
//   - operation.go has the code that all operations share, and quorum.go counts votes
//   - node.go has one node, its queue of requests, and the requests that it missed
//   - connection.go has a node's connection, and the scripts from the folder lua
//   - quarantine.go decides whether a node may vote
//   - backend.go has Open and Close, and check.go has Check, Watch and Properties
//   - options.go has the options and the Spec
package redlock
