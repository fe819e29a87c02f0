// Package core gives applications locks and leader elections on a backend. It waits for locks,
// renews leases, and ends each lease at its deadline.
//
// A [Client] manages the locks of one host on one backend. [Client.Lock] returns a lock by its
// name, and [Lock.Acquire] returns a [Lease] of the lock. The client renews the lease until the
// lease is released or lost. Even if the backend hangs, a lease is lost at its deadline at the
// latest, by the clock of this process. To notice the loss, watch [Lease.Done] or work under
// [Lease.Context]. A valid lease does not prove that a later write is safe, because the process can
// be paused after it has looked at the clock. Only [Lease.Token] protects against such a pause, if
// the resource that is written checks the token of each write.
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
//   - client.go has the Client, its options, and the methods Check, Inspect, List and Break
//   - lock.go has the Lock, its options and methods, and the refusal of a reentrant acquire
//   - queue.go queues this host's callers, and hands a lock from one to the next without the store
//   - contend.go runs one call of Acquire, from its first request to its lease, with all pauses
//   - notify.go tells a waiting Acquire of releases if the store has no queue
//   - attempt.go sends one acquire request, and withdraws that request if its outcome is unknown
//   - token.go wraps the backend, and turns the backend's grant numbers into tokens
//   - clock.go, clock_linux.go and clock_other.go have a clock that counts suspends
//   - lease.go: the Lease and its contexts
//   - schedule.go decides when each lease is renewed and ended
//   - renew.go renews leases, and acts on the answers and on the backend's notices
//   - release.go has Release, and the clean-up that continues after a failed Release
//   - close.go has Close, and records the callbacks that Close waits for
//
// Beside the acquire:
//
//   - elector.go: the Elector and its Term
//   - observe.go has the observers of an election; all observers of one name share a stream
//   - event.go: events, for loggers and OnEvent
//   - errors.go has the errors and the causes of a lease's end, and tells which errors are final
package core
