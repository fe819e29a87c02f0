// Package integrations is lockbench where schedulers and others ask for a lock:
// a package for each, to use or to copy.
//
//   - gocronlock: the Locker and the Elector of go-co-op/gocron
//   - cronlock: a JobWrapper of robfig/cron
//   - certmagiclock: the locks of a certmagic.Storage
//   - synclock: a sync.Locker, and why it is weaker
//
// Their tests run each on Redis in two processes, one of which is killed at work.
package integrations
