// Package cluster keeps connections to the members of an etcd cluster, makes
// requests to one of them, and knows whether they are answered.
package cluster
