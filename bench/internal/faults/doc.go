// Package faults plays schedules. A schedule has hosts, whose callers use locks, and actions that
// harm or change hosts, their surroundings, networks or servers. Each action happens at a given
// time or at a trigger, such as a host's next request. A search draws random schedules to find
// unknown bugs. A soak is a search whose hosts keep running from one schedule to the next. Package
// check judges the hosts' reports by the claims in package claim. If a schedule breaks a claim, the
// search shrinks it to a reproducer. The table of faults is a list of named faults. Each is
// injected while one host holds many locks and another host wants them.
//
// The methods come from Jepsen's nemeses (jepsen.io), etcd's robustness tests (etcd-io/etcd,
// tests/robustness) and QuickCheck's shrinking (K. Claessen, J. Hughes: QuickCheck. ICFP 2000).
//
// # Where is what
//
// Schedules: schedule.go (hosts, callers and events, and how they are drawn), action.go (an action
// and an event), actionpicker.go, trigger.go. Effects of actions: hosts.go, network.go, servers.go,
// descriptors_linux.go and descriptors_other.go. Playing a schedule: play.go, system.go (hosts and
// servers), teardown.go. Evidence for package check: evidence.go. Kinds of runs: tableplay.go (with
// the faults of table.go), search.go (with coverage.go, shrink.go and shrinksteps.go), soak.go and
// reproducer.go. Load on the machine during a measurement: stress.go.
package faults
