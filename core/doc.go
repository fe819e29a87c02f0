// Package core gives applications locks and leader elections on a backend. It waits for locks,
// renews leases, and ends each lease at its deadline.
//
// A [Client] stands for one backend in one host. [Client.Lock] returns a lock by its name, and
// [Lock.Acquire] returns a [Lease] of the lock. The client renews the lease until the lease is
// released or lost. A lease is lost at its deadline at the latest, by the clock of this process,
// even if the backend hangs. To notice the loss, watch [Lease.Done] or work under [Lease.Context].
// A valid lease does not prove that a later write is safe, because the process can be paused after
// it has looked at the clock. Only [Lease.Token] protects against such a pause, if the resource
// checks the token of each write.
//
// [Client.Elector] elects a leader. A leader is the holder of a lease with a value. So a lock and
// an election with the same name are the same lock.
//
// All types are safe for use by many goroutines.
//
// # Where is what
//
// In the order of one acquire:
//
//   - client.go: the Client and its options; calls for operators: Check, Inspect, List, Break
//   - lock.go: the Lock and its options; Acquire, TryAcquire, Do; refusal of a reentrant acquire
//   - queue.go: the callers of this host that wait for a lock; hand-over without the store
//   - contend.go: one acquire from its first request to its lease, with all its pauses
//   - notify.go: how a contender hears of releases where the store has no queue
//   - attempt.go: one request, its context and its end; its withdrawal if the outcome is unknown
//   - token.go: the wrapper of the backend that turns its grant numbers into tokens
//   - clock.go, clock_linux.go, clock_other.go: a clock that includes suspends; when a lease ends
//   - lease.go: the Lease and its contexts
//   - schedule.go: the times at which each lease must be renewed and ended
//   - renew.go: renewals and what their answers mean; notices of the plugin and the store
//   - release.go: Release, and the clean-up that continues after a failed Release
//   - close.go: Close, and the callbacks that it waits for
//
// Beside the acquire:
//
//   - elector.go: the Elector and its Term
//   - observe.go: observers of an election; all observers of one name share a stream
//   - event.go: events, for loggers and OnEvent
//   - errors.go: the errors, which errors are final, and the causes of a lease's end
package core
