// Package drivertest is the conformance suite for backends: one table of cases
// whose names begin with the rule that they check (L1-L8, K1-K8, E1-E4).
//
// The author of a backend writes a function that makes a [Harness], a fresh environment for one
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
//   - harness.go has the Harness, which an author provides, and T
//   - cases.go has the table of cases, the rules, the abilities that cases need, and results
//   - run.go runs cases, in a test or for Conform; trial.go runs one case
//   - clock.go has TTLs and time limits, and measures stalls of this process
//
// What cases use:
//
//   - attempt.go sends requests to a backend
//   - client.go has clients of core, their leases, and a backend that loses requests and replies
//
// Cases, a file for each subject:
//
//   - wait.go, queue.go and grant.go check waits, order, hand-over, and grants to waiters
//   - refusal.go and name.go check owners, refusals, names and TTLs
//   - token.go, release.go, renewal.go and withdraw.go check the life of a grant
//   - deadline.go checks when a lease ends
//   - election.go and observe.go check candidates, their terms, and observers
//   - outage.go and process.go freeze or kill a store, a plugin or a host
package drivertest
