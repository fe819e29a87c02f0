// Package cronlock lets only one of many machines run each tick of a job of
// robfig/cron/v3.
package cronlock

import (
	"context"
	"errors"

	"github.com/robfig/cron/v3"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/tick"
)

// Job is a job that knows its lock. Its ctx ends when the lock is lost. The Lease field of t has
// the fencing token for the job's writes.
type Job func(ctx context.Context, t tick.Tick) error

// Run implements cron.Job. cron calls it only in a chain without [Once], where
// nothing excludes other machines. So Run only panics; cron.Recover logs the panic.
func (Job) Run() { panic("cronlock: this job must run in a chain with cronlock.Once") }

// Once returns a [cron.JobWrapper] that skips ticks that other machines run. The parameter job must
// have the schedule of the wrapped job. Use tick.Every instead of cron's @every. tick.New refuses
// @every, because each machine would count from its start. ctx is the parent of the jobs' contexts.
// If failed is not nil, it is called with each error, except if another machine runs the tick.
//
// The wrapped job should be a [Job]. Any other cron.Job does not learn that its lock was lost.
func Once(ctx context.Context, job *tick.Job, failed func(error)) cron.JobWrapper {
	return func(inner cron.Job) cron.Job {
		return cron.FuncJob(func() {
			err := job.Once(ctx, func(ctx context.Context, t tick.Tick) error {
				if job, ok := inner.(Job); ok {
					return job(ctx, t)
				}
				inner.Run()
				return nil
			})
			if err != nil && !errors.Is(err, core.ErrHeld) && failed != nil {
				failed(err)
			}
		})
	}
}
