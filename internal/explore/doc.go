// Package explore searches for faults that nobody has listed. It plays schedules
// that a seed makes: hosts with callers, and actions that befall them, their
// surroundings, their network and the servers, at random and at triggers of the
// protocol. What the hosts saw is judged by the claims of package claim; a
// schedule that breaks one is shrunk to a reproducer.
//
// The way is that of Jepsen's nemeses (jepsen.io), of etcd's robustness tests
// (etcd-io/etcd, tests/robustness) and of QuickCheck's shrinking (K. Claessen,
// J. Hughes: QuickCheck. ICFP 2000).
package explore
