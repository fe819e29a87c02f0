// Package kit has code that backends share and that needs no knowledge of a store.
//
// # Where is what
//
//   - identity.go: keeping a backend on one server if its address leads to several servers
//   - batcher.go: which operations share a round trip
//   - group.go: goroutines that end with the backend
//   - observe.go: following a lock's holder, for a backend that polls or
//     is told of changes
//   - feed.go: notices to the watchers of a backend
//   - wake.go: waking goroutines that wait for a channel
//   - recent.go: a map that forgets old entries
//   - distance.go: a store's distance, and the time for which it first grants a lock to a waiter
//   - millis.go: durations in whole milliseconds
package kit
