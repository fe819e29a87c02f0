// Package redis keeps each lock on one Redis or Valkey master: a single server, a master
// behind Sentinel, or a node of a Cluster.
//
// A lock is a string key with an expiry. A script takes it by SET NX PX and makes the fencing
// token. The token is the last one plus 1, or the server's clock in microseconds if that is higher.
// So tokens rise even after a loss of data. The key's value has the owner, the token, the label and
// the published value. Each change first compares the owner, the token or both. This is the locking
// pattern of https://redis.io/docs/latest/commands/set/ plus a token.
//
// Replication is asynchronous, so a failover may lose a grant and its token. After such a loss, the
// next token is higher only if the new master's clock is not behind the old one's. WaitReplicas
// makes the loss of a grant rarer. A server that syncs its log every second may lose the last
// second's writes in a crash. If two holders could do harm, the resource must check tokens.
//
// The store has one queue of waiters for each lock, first in, first out over all hosts. A release
// also grants the lock to the first waiter. Without a renewal, this grant lasts 0.5 s, or up to 2 s
// for a distant waiter. The store tells the waiter by pub/sub, also in a Cluster. Another
// program may take the same key by SET NX PX. That program and this package exclude each other, but
// the program's release wakes no waiter.
package redis
