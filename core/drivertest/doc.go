// Package drivertest is the conformance suite for backends: one table of cases
// whose names begin with the rule that they check (L1-L8, K1-K8, E1-E4).
//
// An author writes a function that makes a [Harness], a fresh environment for one
// case, and hands it to [Run]:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
//			store := memory.NewStore()
//			return &drivertest.Harness{
//				Open:      func(drivertest.T) driver.Backend { return store.Open() },
//				InProcess: true,
//			}
//		})
//	}
//
// [Conform] drives the same table outside of a test, for "lockbench conform".
//
// A busy machine fails no backend. Limits count only the time in which the suite's
// process ran. A case that lost a lease while the process stalled runs again in a
// fresh environment, five times at most; then it fails and says that the machine
// was too busy. A fault that does not depend on a clock fails at once.
//
// A case passes, fails, is n/a (a property of the backend excuses it) or is not
// run (the harness lacks an ability, which the result names). A case that is not
// run fails the test when the environment says CI=true or sets LOCKBENCH_REQUIRE.
//
// # Where is what
//
// The suite:
//
//   - harness.go: what an author provides, and T
//   - cases.go: the table, its rules, what a case needs, and what comes of it
//   - run.go: runs cases, in a test or for Conform; trial.go: one case
//   - clock.go: TTLs, limits, and whether this process ran when something was late
//
// What cases use:
//
//   - attempt.go: requests to a backend
//   - client.go: clients of core, their leases, and a backend that fails
//
// Cases, a file for each subject:
//
//   - wait.go, queue.go, grant.go: waiting, order and hand-over, the store's own grant
//   - refusal.go, name.go: owners and refusals, names and TTLs
//   - token.go, release.go, renewal.go, withdraw.go: the life of a grant
//   - deadline.go, done.go: when a lease ends
//   - election.go, observe.go: candidates and their terms, observers
//   - outage.go, plugin.go, host.go: a store, a plugin, a host that is frozen or dead
package drivertest
