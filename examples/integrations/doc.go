// Package integrations uses lockbench in schedulers and other libraries
// that need a lock. For each library there is a package to use or to copy.
//
//   - gocronlock: the Locker and the Elector of go-co-op/gocron
//   - cronlock: a JobWrapper of robfig/cron
//   - certmagiclock: the locks of a certmagic.Storage
//   - synclock: a sync.Locker, and why it is weaker
//
// The tests run each package in two processes with one Redis, and kill a process in mid-job.
package integrations
