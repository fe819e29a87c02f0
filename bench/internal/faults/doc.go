// Package faults plays schedules: hosts with callers, and actions that befall
// them, their surroundings, their network and the servers, at times and at triggers
// of the protocol. A search draws them by a seed and looks for faults that nobody
// has listed, and a soak lets its hosts live on from one to the next; what their
// hosts saw is judged by the claims of package claim, and a schedule that breaks one
// is shrunk to a reproducer. The table of faults has schedules of one kind: one host
// holds many locks, another one wants them, and a fault is injected; package check
// judges what both believed.
//
// The way is that of Jepsen's nemeses (jepsen.io), of etcd's robustness tests
// (etcd-io/etcd, tests/robustness) and of QuickCheck's shrinking (K. Claessen,
// J. Hughes: QuickCheck. ICFP 2000).
//
// # Where is what
//
// What there is to play: schedule.go (hosts, callers and events, and how they are
// drawn), action.go (an action and an event), actionpicker.go, trigger.go. What
// actions do: hosts.go, network.go, servers.go, descriptors_linux.go
// and descriptors_other.go. How a schedule is played: play.go, system.go (hosts and
// servers), teardown.go; then judge.go. Who plays: tableplay.go, with the
// faults of table.go, search.go, with coverage.go, shrink.go and shrinksteps.go,
// soak.go, and reproducer.go. What is measured beside a load asks stress.go for it.
package faults
