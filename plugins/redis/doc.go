// Package redis is the backend that keeps each lock on one Redis or Valkey
// master. The master stands alone, behind Sentinel, or in a Cluster.
//
// A lock is a string key with an expiry, taken by SET NX PX in a script that also
// mints the fencing token. The token is the last token plus one, or the server's
// clock in microseconds if the clock is higher, so that tokens keep rising after a
// loss of data. The key's value contains the owner, the token, the label and the
// published value. A change first compares the owner, the token or both. This is the
// locking pattern of https://redis.io/docs/latest/commands/set/ plus a token.
//
// Replication is asynchronous, so a failover may lose a grant together with its
// token. The next token is then higher only if the promoted server's clock is not
// behind the old master's. The option WaitReplicas makes the loss of a grant rarer.
// A server that syncs its log every second may lose the last second in a crash.
// Where two holders would do harm, the resource has to check tokens.
//
// Waiters queue in the store, first in, first out over all hosts. A release grants the lock
// to the first waiter in the same step, at first for half a second (up to 2 s if the waiter is
// far away), and the store tells the waiter by pub/sub, in a Cluster too. A foreign client that
// takes the same key by SET NX PX excludes us and is excluded by us. Its release wakes no waiter.
package redis
