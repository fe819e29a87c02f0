// Package cronlock lets one machine of many run each tick of a job of
// robfig/cron/v3.
package cronlock

import (
	"context"
	"errors"

	"github.com/robfig/cron/v3"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/tick"
)

// Job is a job that knows its lock. ctx ends when the lock is lost, and the
// lease of the tick has the token to write with.
type Job func(ctx context.Context, t tick.Tick) error

// Run implements cron.Job, for a chain without the wrapper. Nothing would
// exclude other machines then, so Run only panics, which cron.Recover logs.
func (Job) Run() { panic("cronlock: this job must run in a chain with cronlock.Once") }

// Once is a [cron.JobWrapper] that skips a tick when another machine has it.
// job must have the same schedule as the wrapped job. tick.New refuses
// @every, which each machine counts from its own start: use tick.Every. ctx
// is the parent of the jobs' contexts. failed gets the error of a tick that
// failed and that no other machine has; it may be nil.
//
// A plain cron.Job runs too, but does not learn that its lock was lost: make it a [Job].
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
