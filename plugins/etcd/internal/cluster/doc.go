// Package cluster keeps connections to the members of an etcd cluster, makes
// requests to one of them, and knows whether the members answer.
//
// # Where is what
//
//   - cluster.go: Cluster and its options
//   - member.go: which member is used; poll.go: which is the fastest
//   - connect.go: connections; identity.go: whether they lead to one cluster
//   - request.go: requests and streams; errors.go: what their failures mean
//   - health.go: whether the store is down
package cluster
