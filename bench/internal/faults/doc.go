// Package faults plays schedules. A schedule has hosts, whose callers use locks, and events. Each
// event is an action that harms or changes a host, its surroundings, a network or a server. An
// event happens at a given time or at a trigger, such as a host's next request. A search plays
// random schedules to find bugs. Package check judges the hosts' reports by the claims in package
// claim. If a schedule breaks a claim, the search shrinks this schedule to a reproducer. A soak is
// a search whose hosts keep running from one schedule to the next. The table of faults lists named
// faults. Each fault is injected while one host holds many locks and another host wants them.
//
// The methods are those of Jepsen's nemeses (jepsen.io), etcd's robustness tests (etcd-io/etcd,
// tests/robustness) and QuickCheck's shrinking (K. Claessen, J. Hughes: QuickCheck. ICFP 2000).
//
// # Where is what
//
// Schedules are in schedule.go (hosts, callers and random events), action.go, actionpicker.go and
// trigger.go. The effects of actions are in hosts.go, network.go, servers.go, descriptors_linux.go
// and descriptors_other.go. A schedule is played by play.go, system.go and teardown.go, which passes
// the record of the schedule to package check. The table of faults is in table.go and tableplay.go.
// The search is in search.go, shrink.go and soak.go. Reproducers are in reproducer.go.
package faults
