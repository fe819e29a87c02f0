// Package kit has what backends share and no store needs to be known for.
//
// # Where is what
//
//   - connect.go: the configuration of a backend, one struct with tags that are its
//     keys, their defaults and their documentation, and the options of its library;
//     [Connect] is what all of them need, so that a key means the same everywhere
//   - source.go: certificates, authorities and passwords, which are renewed more often
//     than the processes that use them, read again for each connection ([Source])
//   - unanswered.go: what an error says when no server of the backend answers
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
