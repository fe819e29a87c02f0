// Package kit has code that backends share and that needs no knowledge of a store.
//
// # Where is what
//
//   - identity.go: an address that leads to more than one server
//   - batcher.go: which operations share a round trip
//   - group.go: goroutines that end with the backend
//   - observe.go: who holds a lock, and each change, for a backend that is told of
//     changes and for one that polls
//   - feed.go: notices to the watchers of a backend
//   - wake.go: waking goroutines that wait for a channel
//   - recent.go: a map that forgets by itself
//   - distance.go: for how long a store grants a lock to a waiter, by how far away it is
//   - millis.go: durations in whole milliseconds
package kit
