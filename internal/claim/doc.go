// Package claim has the promises of all backends in one place: events that never happen, events
// that happen within a bound, and conditions under which a promise does not hold.
//
// A value of [Terms] has the exceptions and the times of one backend. The terms of each backend are
// in a file that has the backend's name. Package check uses rules and terms to decide whether a run
// has broken a promise. Each backend promises each rule, except in its exceptions. docs/safety.md
// and docs/backends.md explain promises and exceptions to users. They name the events that break a
// promise, and the sources of the times. This package imports only the standard library.
//
// # Where is what
//
//   - claim.go: defines the rules, and the conditions under which a rule is not promised
//   - bound.go: computes the longest time that each event may take
//   - terms.go: lists the backends; each has a file: etcd.go, memory.go, mysql.go, postgres.go,
//     redis.go, redlock.go
//   - file.go: reads the terms of any other backend from a file of the backend's author
package claim
