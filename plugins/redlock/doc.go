// Package redlock is the backend that keeps locks on 3, 5, 7 or 9 independent
// Redis or Valkey masters. A majority of them decides.
//
// # The algorithm
//
// This is the algorithm that the Redis manual describes on the page "Distributed Locks with
// Redis" (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/). An
// attempt takes the lock on all nodes at the same time, each with SET NX PX within
// NodeTimeout. From the TTL it subtracts the time passed and, because clocks differ in
// speed, a hundredth of the TTL and 2 ms. The attempt succeeds if a majority granted the
// lock and some of the TTL is left. A failed attempt is undone on every node, and package
// core retries after a random delay. A renewal succeeds if a majority still has the lease.
// An operation returns when a majority has answered; the other nodes follow later.
//
// A node that does not vote in time is left out of every operation until it
// answers again, so that operations wait for it for one NodeTimeout only. When
// it answers, it is first told what it has missed. All requests to one node go
// over one connection, in order, and simultaneous requests share a script.
//
// After a renewal by a majority, the nodes where the lock is free get a copy of the lease,
// and count from the next renewal on. So a minority never revives a lost lease.
//
// # What it was criticised for
//
// Martin Kleppmann's article "How to do distributed locking" (2016) makes two
// points: the lock depends on clocks and bounded delays, and it has no token by
// which a resource could refuse a holder that has lost the lock. Salvatore
// Sanfilippo's reply "Is Redlock safe?" discusses both points. The manual page
// names a third point: a node that restarts without its data votes again for a
// lock that it had granted. This package changes the following.
//
//   - Tokens. Every grant's token is above what a majority of nodes has seen.
//     Before the grant is returned, the token is written to a majority, in the
//     same step that checks that the grant is still there. A node's token
//     counter is never below the node's clock in microseconds. So tokens rise
//     for every lock, even when nodes lose their data, if the nodes' clocks
//     differ by less than MaxTTL. A resource that checks tokens refuses the writes of a
//     holder that was paused past its deadline, once it has seen the next holder's token.
//   - Quarantine. A node votes only while the hash "~redlock" on it has the run id of
//     its server. The run id is read when a connection opens, and every script compares
//     it. After a restart or FLUSHALL the hash does not match, and the node's votes do
//     not count for the time MaxTTL, until every lease that it had granted is over.
//     MaxTTL has passed when one host has watched the node for that long, or when the
//     node's clock and the clocks of a majority have advanced by MaxTTL since instants
//     recorded on the node. TTLs above MaxTTL are refused. MaxTTL must be the same on
//     every host of these nodes, even under different prefixes.
//
// Two weaknesses remain. When the clocks of a majority jump ahead, leases
// expire too early, and two holders may believe in their leases at the same
// time. A holder that is paused past its deadline does not know that it has
// lost the lock. In both cases only the token tells the holders apart. If the
// resource does not check tokens, this lock saves work but does not protect
// data. And FLUSHALL or Break on a majority of nodes ends a lease for good.
//
// A new set of nodes is in quarantine too. "lockplugin-redlock init" lets it vote at
// once. It refuses when only some nodes vote, or when they vote with another MaxTTL.
//
// # Waiting
//
// Queues on all nodes would hand the nodes to different waiters, and no waiter
// would get a majority. So one node keeps the queue of a name: the first voting
// node in an order that depends on the name. The other nodes only vote. The
// first waiter in the queue is woken by pub/sub after the lock is free on a majority.
// Waiters are served nearly first come, first served: an attempt overtakes if
// it gets a majority while the node with the queue is out of reach.
//
// # Cost
//
// Each operation sends one script to every node; a batch sends one script for
// up to 64 operations.
//
//	acquire    1 round; 2 when another host has just minted a higher token;
//	           2 when others wait for the lock; 1 more to undo a failed attempt
//	renew      1 round; nodes that miss the lease: 2 more requests in the background
//	release    1 round; 1 more request to the node with the queue to wake a waiter
//	proclaim   1 round
//	inspect    1 round, and the votes of all nodes
//	observe    1 inspect each 100 ms
//	wait       1 request to the node with the queue each second
//
// # Rights and settings
//
// Every node must be a master with maxmemory-policy noeviction; other nodes are
// refused. An ACL user needs the commands of the redis backend, and the key
// "~redlock" besides the prefix's keys. A node without appendonly loses its
// part of every lease in a restart, and quarantine makes that safe. A node with
// appendonly also goes into quarantine after a restart.
//
// # Where is what
//
//   - acquire.go, renew.go, release.go, wait.go: the operations
//   - inspect.go: who holds a lock, what is published, and what operators ask
//   - operation.go: what all operations share; quorum.go: votes, and when they are a majority
//   - node.go: one node, its queue of requests, and requests sent to it again
//   - connection.go: a node's connection, and the scripts, which are in lua
//   - quarantine.go: whether a node may vote
//   - backend.go: Open and Close; check.go: Check, Watch and Properties
//   - options.go: the options and the Spec
package redlock
