// Package core is what applications use: locks and leader elections on a
// backend, with all the waiting, renewing and deadlines that these need.
//
// A [Client] stands for one backend in one host. [Client.Lock] names a lock,
// [Lock.Acquire] returns a [Lease], and the client renews it until it is
// released or lost. A lease is lost at its deadline at the latest, by the
// clock of this process, whatever the backend does: watch [Lease.Done], or work
// under [Lease.Context]. That is no proof. A process can be paused after its
// last look at the clock; only [Lease.Token], checked by the resource that is
// written to, protects against that.
//
// [Client.Elector] elects a leader. A leader is the holder of a lease with a
// value: a lock and an election of one name are the same lock.
//
// All types are safe for use by many goroutines.
package core
