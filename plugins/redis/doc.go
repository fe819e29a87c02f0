// Package redis keeps each lock on one Redis or Valkey master: a single server, a master
// behind Sentinel, or a node of a Cluster.
//
// A lock is a string key with an expiry. A script takes the lock by SET NX PX and makes the fencing
// token. The token is the last one plus 1, or the server's clock in microseconds if that is higher.
// So tokens rise even after a loss of data. The key's value has the owner, the token, the label and
// the published value. Before a script changes a lease, it compares owner, token or both with the
// request. This is the pattern of https://redis.io/docs/latest/commands/set/ plus a token.
//
// Replication is asynchronous, so a failover may lose a grant and its token. After such a loss, the
// next token is higher only if the new master's clock is not behind the old one's. WaitReplicas
// makes such a loss rarer. A server that syncs its append-only file every second may lose the last
// second's writes in a crash. If two holders could do harm, the resource must check tokens.
//
// The store has one first-in, first-out queue for each lock, with the waiters of all hosts. A
// release also grants the lock to the first waiter, and tells the waiter by pub/sub. Without a
// renewal, this grant lasts 0.5 s, or up to 2 s for a distant waiter. Another program may take the
// same key by SET NX PX. That program and this package exclude each other, but the program's
// release wakes no waiter.
package redis
