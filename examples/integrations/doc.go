// Package integrations uses lockbench in schedulers and other libraries
// that need a lock. For each library there is a package to use or to copy.
//
//   - gocronlock: implements the Locker and the Elector of go-co-op/gocron
//   - cronlock: implements a JobWrapper of robfig/cron
//   - certmagiclock: replaces the locks of a certmagic.Storage
//   - synclock: implements a sync.Locker, and says why it is weaker than a lease
//
// The tests run each package in two processes with one Redis, and kill a process during its job.
package integrations
