// Package redisnode connects the backends redis and redlock to one Redis server, Sentinel group or
// Cluster.
//
// All state is in Redis. A lock key is a plain string that expires. So this package and clients
// that take the same key with SET NX PX exclude each other. The key's value has the lock's owner,
// token, label and published value. Beside the lock keys, a prefix has one control string (with the
// last token and more), one set of withdrawn owners, and one short-lived key (a sign of life) for
// each process that waits. In a Cluster, each slot in use has its own control string, set and signs
// of life. While an owner waits for a lock, the lock also has a queue key.
//
// # Where is what
//
//   - node.go: Node and its options; batch.go: operations; requests.go: what shares a round trip
//   - keys.go: how names become keys; value.go: what is in a key and in a reply
//   - script.go: the scripts, which are in the folder lua
//   - waiting.go, boot_linux.go, boot_other.go: waiters, and signs of life of this process
//   - wakeups.go: the connection that wakes waiters
//   - observe.go: who holds a lock, and which locks there are
//   - address.go, connect.go, conn_linux.go, conn_other.go: addresses and connections
//   - server.go: which servers are accepted; errors.go: what their errors mean
package redisnode
