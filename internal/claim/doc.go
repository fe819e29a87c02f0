// Package claim has the promises of all backends in one place: what never happens,
// what happens within which time, and under which conditions a promise does not hold.
//
// The particular promises of a backend, with its exceptions, are its [Terms], in the
// file of its name. Package check judges by rules and terms. Whatever is not excepted
// is promised; docs/safety.md and docs/backends.md say both to users, with what
// breaks a claim, where its times come from, and the sources. The package imports the
// standard library only.
//
// # Where is what
//
//   - claim.go: the rules, and the conditions under which one is not promised
//   - bound.go: by when something must have happened
//   - terms.go: the backends; one each: etcd.go, memory.go, mysql.go, postgres.go, redis.go,
//     redlock.go
//   - file.go: the terms of any other one, as its author writes them
package claim
