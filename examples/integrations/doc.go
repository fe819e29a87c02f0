// Package integrations uses lockbench in schedulers and other libraries that
// ask for a lock. Each has a package to use or to copy.
//
//   - gocronlock: the Locker and the Elector of go-co-op/gocron
//   - cronlock: a JobWrapper of robfig/cron
//   - certmagiclock: the locks of a certmagic.Storage
//   - synclock: a sync.Locker, and why it is weaker
//
// The tests run each package on Redis in two processes, one of which is killed at work.
package integrations
