// Package explore plays schedules: hosts with callers, and actions that befall
// them, their surroundings, their network and the servers, at times and at triggers
// of the protocol. A search draws them by a seed and looks for faults that nobody
// has listed, a soak lets its hosts live on from one to the next, and the rounds of
// package safety are schedules too. What the hosts of a search saw is judged by the
// claims of package claim; a schedule that breaks one is shrunk to a reproducer.
//
// The way is that of Jepsen's nemeses (jepsen.io), of etcd's robustness tests
// (etcd-io/etcd, tests/robustness) and of QuickCheck's shrinking (K. Claessen,
// J. Hughes: QuickCheck. ICFP 2000).
package explore
