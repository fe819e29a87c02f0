// Package redisnode connects the backends redis and redlock to one Redis server, Sentinel group or
// Cluster.
//
// All state is in Redis. A lock's key is a plain string that expires. So this package and other
// clients that take the same key with SET NX PX exclude each other. The key's value has the lock's
// owner, token, label and published value. A lock with waiters also has a queue key. Each prefix
// has one control string (with the last token and more), one set of withdrawn owners, and one
// short-lived key (a sign of life) for each process with waiters. In a Cluster, each slot in use
// has its own control string, set and signs of life.
//
// # Where is what
//
//   - node.go has Node and its options, batch.go has operations, and requests.go has round trips
//   - keys.go makes keys from lock names, and value.go reads keys' values and replies
//   - script.go assembles the scripts from the texts in the folder lua
//   - waiting.go, boot_linux.go and boot_other.go serve waiters, and send signs of life
//   - wakeups.go has the connection that wakes waiters
//   - observe.go follows the holder of a lock, and lists the names of locks
//   - address.go, connect.go, conn_linux.go and conn_other.go have addresses and connections
//   - server.go decides which servers are accepted, and errors.go explains their errors
package redisnode
