// Package redis is the backend on one Redis or Valkey master, alone, behind
// Sentinel, or in a Cluster.
//
// A lock is a string key with an expiry, taken by SET NX PX in a script that
// mints the fencing token in the same step: the next higher number, and at
// least the server's clock in microseconds, so that tokens go on rising when
// the data is lost. The key's value has the owner, the token, the label and
// the published value, and is compared before anything is changed. This is the
// pattern of https://redis.io/docs/latest/commands/set/ with a token.
//
// What it cannot promise: replication is asynchronous, so a failover may lose
// a grant, and with it the newest token: the next one is higher only as far as
// the promoted server's clock is not behind. WaitReplicas makes that rarer. A
// server that syncs its log every second may lose the last second by a crash.
// Where two holders would do harm, the resource has to check tokens.
//
// Waiters queue in the store, first in first out over all hosts. A release grants
// the lock to the first in the same step, for half a second, and tells it by
// pub/sub, in a Cluster too. Foreign holders of the same key (SET NX PX by any
// client) exclude and are excluded; no waiter is told when they release.
package redis
