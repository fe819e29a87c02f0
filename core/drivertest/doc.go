// Package drivertest is the conformance suite for backends: one table of cases
// whose names begin with the rule that they check (L1-L8, K1-K8, E1-E4).
//
// An author writes a function that makes a [Harness], a fresh environment for one
// case, and passes the function to [Run]:
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
// [Conform] runs the same cases without a test, for "lockbench conform".
//
// A busy machine rarely makes a correct backend fail. Most time limits count only the time in which
// the suite's process ran. If a stall of that process may be the reason for a failure, the case
// runs again in a fresh environment. After five such runs the case fails and says that the machine
// was too busy. A failure that does not depend on time fails the case at once.
//
// A case passes, fails, is n/a (a property of the backend excuses it) or is not
// run (the harness lacks an ability, which the result names). A case that is not
// run fails the test if the environment has CI=true or sets LOCKBENCH_REQUIRE.
//
// # Where is what
//
// The suite:
//
//   - harness.go: what an author provides, and T
//   - cases.go: the table of cases, the rules, the abilities that cases need, and results
//   - run.go: runs cases, in a test or for Conform; trial.go: one case
//   - clock.go: TTLs, time limits, and stalls of this process
//
// What cases use:
//
//   - attempt.go: requests to a backend
//   - client.go: clients of core, their leases, and a backend that fails
//
// Cases, a file for each subject:
//
//   - wait.go, queue.go, grant.go: waiting, order and hand-over, grants without a request
//   - refusal.go, name.go: owners and refusals, names and TTLs
//   - token.go, release.go, renewal.go, withdraw.go: the life of a grant
//   - deadline.go, done.go: when a lease ends
//   - election.go, observe.go: candidates and their terms, observers
//   - outage.go, plugin.go, host.go: a store, a plugin or a host that is frozen or dead
package drivertest
