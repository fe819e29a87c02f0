// Package kit has code that several backends share and that works with any store.
//
// # Where is what
//
//   - identity.go keeps a backend on one server if its address leads to several servers
//   - batcher.go decides which operations share a round trip to the store
//   - group.go runs goroutines that end with the backend
//   - observe.go follows the holder of a lock, by polling the store or after each reported change
//   - feed.go queues a backend's notices for its watchers
//   - wake.go wakes goroutines that wait for a channel
//   - recent.go has a map that forgets old entries
//   - distance.go computes how long a grant to a waiter lasts, from the round trip time to the
//     store
//   - millis.go rounds durations up to whole milliseconds
package kit
