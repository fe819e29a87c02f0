// Package cronlock lets one machine of many run each job of robfig/cron/v3.
package cronlock

import (
	"context"
	"errors"

	"github.com/robfig/cron/v3"

	"github.com/lockbench/lockbench/core"
)

// Job is a job that knows of its lock. ctx ends when the lock is lost, and the
// lease has the token to write with.
type Job func(ctx context.Context, lease *core.Lease) error

// Run implements cron.Job, for a chain without the wrapper: nothing excludes
// others then, so it does nothing but panic, which cron.Recover logs.
func (Job) Run() { panic("cronlock: this job must run in a chain with cronlock.Once") }

// Once is a [cron.JobWrapper]: the job runs under lock, and is skipped when
// another machine, or an earlier run here, has it. The lock is renewed for as
// long as the job runs. ctx is the parent of the jobs' contexts. failed is told
// what became of a run that was not skipped and not well; nil for nobody.
//
// A plain cron.Job runs too, but does not hear that its lock was lost: make it a
// [Job]. Set AtLeast of the lock to how far the machines' clocks may be apart, or
// one that is late runs the tick of a short job again.
func Once(ctx context.Context, lock *core.Lock, failed func(error)) cron.JobWrapper {
	return func(inner cron.Job) cron.Job {
		return cron.FuncJob(func() {
			err := lock.TryDo(ctx, func(ctx context.Context, lease *core.Lease) error {
				if job, ok := inner.(Job); ok {
					return job(ctx, lease)
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
