// Package redlock is the backend on 3, 5, 7 or 9 independent Redis or Valkey
// masters. A majority of them decides.
//
// # The algorithm
//
// It is the one that the Redis manual describes on the page "Distributed Locks
// with Redis" (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/):
// an attempt takes the lock on all nodes at the same time, each with SET NX PX
// within NodeTimeout; it succeeds with a majority, if the TTL less the time that
// has passed and less a hundredth of the TTL and 2 ms for clocks of different
// speed leaves anything; a failed attempt is undone on every node, and package
// core retries after a random delay. A renewal succeeds where a majority still
// has the lease. Operations return with the majority; the other nodes follow in
// the background.
//
// A node that does not vote in time is left out of every operation until it
// answers again, so that it costs NodeTimeout once. What it has missed it is
// told first. All requests to one node go over one connection, in their order;
// what many callers ask at the same time shares a script.
//
// After a renewal by a majority the nodes that miss the lease get it back, and
// count from the next renewal on: a minority never revives a lost lease.
//
// # What it was criticised for
//
// Martin Kleppmann's article "How to do distributed locking" (2016) makes two
// points: the lock depends on clocks and bounded delays, and it has no token by
// which a resource could refuse a holder that has lost it. Salvatore
// Sanfilippo's reply "Is Redlock safe?" discusses both. The manual page itself
// tells of a third: a node that restarts without its data votes again for a
// lock that it had granted. Here is what this package changes.
//
//   - Tokens. Every grant's token is above what
//     a majority of nodes has seen, and is written to a majority in the same
//     step that checks that the grant is still there, before the grant is
//     returned. A node's counter is never below its own clock in microseconds.
//     So tokens rise for every lock, also when nodes lose their data, as long as
//     the nodes' clocks agree better than MaxTTL. A resource that checks them
//     refuses the writes of a holder that was paused.
//   - Quarantine. A node votes only while the hash "~redlock" on it has the run
//     id of its server, which is read when a connection opens and compared in
//     every script. After a restart or FLUSHALL it does not match, and the node
//     counts for nothing for MaxTTL, by which time every lease that the node had
//     granted is over. That has passed when a host has watched it for so long,
//     or when the node's clock and those of a majority have gone on by it since
//     instants that the node keeps. TTLs above MaxTTL are refused, and MaxTTL
//     must be the same on every host of these nodes, whatever their prefix.
//
// What they do not change: when the clocks of a majority jump ahead, leases
// expire too early, and two holders may believe in theirs at the same time; a
// holder that is paused past its deadline does not know. In both cases only
// the token, checked by the resource, tells them apart. When nobody checks it,
// this stays a lock that saves work, not one that protects data. And a lease
// that is lost on a majority by FLUSHALL or Break on each is lost.
//
// A fresh cluster is in quarantine too. "lockplugin-redlock init" lets it vote at
// once; it refuses when some nodes vote and others do not, or with another MaxTTL.
//
// # Waiting
//
// A queue on every node would hand the nodes to different waiters, and nobody
// would get a majority. So one node keeps the queue of a name, the first that
// votes in an order that depends on the name; the others only vote. The first
// of the queue is woken by pub/sub after a majority is free. Nearly first come,
// first served: an attempt that gets a majority while the node with the queue
// is out of reach overtakes.
//
// # Cost
//
// For N nodes, each operation sends one script to each; a batch sends one for
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
// Every node must be a master with maxmemory-policy noeviction; others are
// refused. An ACL user needs the commands of the redis backend, and the key
// "~redlock" besides the prefix's keys. Without appendonly a restart loses the
// node's part of every lease, and quarantine sees to the rest; with it the node
// is in quarantine all the same.
//
// # Where is what
//
//   - acquire.go, renew.go, release.go, wait.go: the operations
//   - inspect.go: who holds a lock, what is published, and what operators ask
//   - operation.go: what all have in common; quorum.go: votes, and when they are a majority
//   - node.go: one node, its queue, and what it is told again
//   - connection.go: its connection, and the scripts, which are in lua
//   - quarantine.go: whether it may vote
//   - backend.go: Open and Close; check.go: Check, Watch and Properties
//   - options.go: the options and the Spec
package redlock
