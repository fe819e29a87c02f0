// Package tick runs a function once for each tick of a schedule, on one of
// the hosts that share a backend. A tick is a time when a [Job] is due.
//
//	job, err := tick.New(client, "refresh", tick.Every(time.Minute), nil)
//	...
//	err = job.Run(ctx, func(ctx context.Context, t tick.Tick) error {
//		return refresh(ctx, t.Lease.Token())
//	})
//
// # What is guaranteed
//
// No tick is run twice while three conditions hold. First, the store does not lose a grant.
// docs/backends.md says for each backend how grants can be lost, for example because an operator
// breaks the tick's lock. Second, the wall clocks of any two hosts differ by less than 49 % of
// [Options.Keep]. Third, all hosts give a job the same name, schedule, Late and Keep.
//
// No tick is run twice even if a process is paused, for any time and at any instruction, or if the
// process, its plugin or its machine dies. If a host dies while it runs a tick, no host runs that
// tick again.
//
// Without Overlap, a tick does not run while the previous tick still runs. This promise has the
// limits that every lock has. A function whose lease is lost must stop when its ctx ends. If a
// process is paused after it has checked its lease, only the token helps (see package core).
//
// A tick is not run if, from its due time until [Options.Late] after that,
//   - every host was stopped, or could not reach the store;
//   - without Overlap, the previous run had not ended, or a paused host held the job's lock until
//     its TTL was over (so set Late longer than that TTL);
//   - or the host that got the tick's lock was killed, or paused for too long, between that grant
//     and the first instruction of the function (about 100 us).
//
// # What is reported
//
// If no host has run a tick, exactly one host reports it as [Missed], and after that no host runs
// it. That host may have been stopped or cut off when the tick was due. But if the tick is more
// than half of Keep old, such a host reports it as [Unknown]. If a host takes a tick and is killed,
// no host reports that tick as missed, whether or not the function had begun.
//
// If a host's wall clock is set back by more than half of Keep, the host goes on with the ticks at
// the new time. So the ticks that it ran while its clock was wrong are run and reported again.
//
// # How
//
// A job uses two kinds of locks. The job's lock NAME is held and renewed while the function runs,
// so that two runs do not overlap. The tick's lock NAME@TIME records that a host has taken the
// tick. A host acquires NAME@TIME while it holds NAME, just before it calls the function. The store
// keeps NAME@TIME for Keep from the grant, even if the host releases it or dies
// (core.LockOptions.AtLeast). A host that finds NAME@TIME held does not run the tick. A host that
// has acquired NAME@TIME reads its wall clock, and does not run the tick if the tick is more than
// Late old.
//
// Why is no tick run twice? Suppose that the store granted NAME@T to host A and then to host B, and
// that both ran the tick. A sent its request when A's clock showed T or later. The store kept A's
// grant for the time Keep after the request, by a clock that is at most a hundredth too fast. When
// B had its answer, B's clock showed T + Keep/2 or less, because B ran the tick. If the clocks of A
// and B differ by less than Keep/2 - Keep/100, B had its answer before A's grant expired. So the
// store cannot have granted NAME@T to B. A pause of B between the answer and the function does no
// harm, because when B's grant has expired, every other host is too late for the tick.
//
// Why does only one host report a missed tick? A host that is too late to run the tick,
// but at most Keep/2 late, also acquires NAME@T. By the argument above, it gets NAME@T
// only if no host has run the tick, and after that grant no host can run the tick.
package tick

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core"
)

const (
	// minKeep is the least default of Keep if TTLMax allows it. Wall clocks may then differ by 29 s.
	minKeep = time.Minute
	// maxLate is the largest default of Late.
	maxLate = time.Hour
	// nap bounds each sleep between two readings of the wall clock, because timers stand still
	// while the machine is suspended, and because the wall clock may be set.
	nap = time.Second
)

// ErrLate means that this host must not run the tick, because the tick is more than Late old.
var ErrLate = errors.New("too late for the tick")

// errForgotten means that the tick is too old. The store may have forgotten that a host took it.
var errForgotten = fmt.Errorf("%w: it is more than half of Keep ago", ErrLate)

// Schedule says when a job is due. A Schedule must have the same ticks on all hosts. So New refuses
// a schedule that counts from the time of the call, as "@every" of cron libraries does. A schedule
// of github.com/robfig/cron/v3 is suitable if it names its time zone.
type Schedule interface {
	// Next returns the first tick after t, or the zero time if there is none.
	Next(t time.Time) time.Time
}

// Every returns a Schedule with a tick at each multiple of d since the zero time, in UTC.
// Every(time.Minute) has a tick at each full minute, and Every(24*time.Hour) at each midnight.
func Every(d time.Duration) Schedule { return every(d) }

type every time.Duration

func (d every) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(d)).Add(time.Duration(d))
}

// Options of a [Job]. Nil and zero fields mean the defaults. Late and Keep must be the same on all
// hosts.
type Options struct {
	// Late is the longest delay with which a tick may still be started, for example by a host that was
	// stopped or cut off, or that waited for the previous run. The default is the time until the next
	// tick, but at most an hour, a quarter of Keep, and a quarter of the longest TTL.
	Late time.Duration
	// Keep is the time for which the store records that a tick was taken. Keep must be at least 4 *
	// Late, and is rounded up to a TTL that the backend can keep. The store has a lock for every tick
	// that is younger than Keep. The wall clocks of two hosts must differ by less than 49 % of Keep.
	// The default is 4 * Late, but at least the smaller of a minute and the backend's longest TTL.
	Keep time.Duration
	// Lock has options such as TTL and MaxHold for the job's lock, which is held while the
	// function runs. New always sets ReleaseInBackground. With Overlap, Lock is unused.
	Lock core.LockOptions
	// Overlap lets a tick run while earlier ticks still run, even on the same host. The function
	// then holds only its tick's lock, whose TTL is Keep, and tokens do not rise from tick to tick.
	Overlap bool
	// Logger gets every Event. The level is Warn for the kinds Missed and Unknown and for a
	// function that failed, and otherwise Debug. Default slog.Default().
	Logger *slog.Logger
	// OnEvent is called for each Event, never concurrently. It must return soon, because it runs on
	// goroutines that also run ticks. Default nil.
	OnEvent func(Event)
}

// Job has a name and a schedule. At each tick of the schedule, at most one host calls
// a function. A Job is safe for use by many goroutines, and need not be closed.
type Job struct {
	c        *core.Client
	name     string
	schedule Schedule
	opts     Options
	lock     *core.Lock       // the lock NAME; nil with Overlap
	now      func() time.Time // time.Now, except in tests
	told     chan struct{}    // buffer of 1, full while an event is delivered
}

// Tick is one tick that this host runs.
type Tick struct {
	At time.Time // when the tick is due
	// Lease is the lease that is held while the function runs. The tokens
	// of these leases rise from tick to tick, unless the job has Overlap.
	Lease *core.Lease
}

// New returns a job with this name. The job's lock has the same name, and the
// names of the ticks' locks are at most 31 bytes longer. For a bad name, schedule
// or option, the error wraps [core.ErrInvalid]. New does not ask the store.
func New(c *core.Client, name string, s Schedule, opts *Options) (*Job, error) {
	j := &Job{c: c, name: name, schedule: s, now: time.Now, told: make(chan struct{}, 1)}
	if opts != nil {
		j.opts = *opts
	}
	j.opts.Logger = cmp.Or(j.opts.Logger, slog.Default())
	if err := j.check(); err != nil {
		return nil, fmt.Errorf("tick: job %q: %w", name, err)
	}
	return j, nil
}

func (j *Job) check() (err error) {
	o := &j.opts
	now := j.now()
	first := j.next(now)
	switch {
	case o.Late < 0 || o.Keep < 0:
		return fmt.Errorf("%w: Late %v or Keep %v is negative", core.ErrInvalid, o.Late, o.Keep)
	case o.Keep > 0 && o.Keep < 4*o.Late:
		return fmt.Errorf("%w: Keep %v is less than 4 times Late %v", core.ErrInvalid, o.Keep, o.Late)
	case !first.IsZero() && (!first.After(now) || !j.next(first.Add(-1)).Equal(first)):
		return fmt.Errorf("%w: the schedule counts from when it is asked, so that hosts would not agree about ticks: take tick.Every with an interval above 0", core.ErrInvalid)
	}
	longest := time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	if _, err = j.mark(longest); err != nil || o.Overlap {
		return err
	}
	o.Lock.ReleaseInBackground = true // a store that is down must not delay the next tick
	j.lock, err = j.c.Lock(j.name, &o.Lock)
	return err
}

// next returns the first tick after t, without a monotonic clock reading.
func (j *Job) next(t time.Time) time.Time { return j.schedule.Next(t.Round(0)).Round(0) }

// age returns the time, by the wall clock, since the tick due at t=at. The parameter at must have
// no monotonic clock reading.
func (j *Job) age(at time.Time) time.Duration { return j.now().Sub(at) }

// spans returns Late and Keep for the tick due at t=at. Late is at most a quarter of Keep. So hosts
// have at least the time Late to report a missed tick: while its age is between Late and Keep/2.
func (j *Job) spans(at time.Time) (late, keep time.Duration) {
	p := j.c.Properties()
	late, keep = j.opts.Late, j.opts.Keep
	if late == 0 {
		late = min(maxLate, p.TTLMax/4)
		if next := j.next(at); !next.IsZero() {
			late = min(late, next.Sub(at))
		}
		if keep > 0 {
			late = min(late, keep/4)
		}
	}
	if keep == 0 {
		keep = max(4*late, min(minKeep, p.TTLMax))
	}
	keep = max(keep, p.TTLMin)
	return late, (keep + p.TTLStep - 1) / p.TTLStep * p.TTLStep
}

func (j *Job) markName(at time.Time) string {
	return j.name + "@" + at.UTC().Format(time.RFC3339Nano)
}

// mark returns the lock NAME@TIME of the tick due at t=at. A host that acquires it takes the tick.
func (j *Job) mark(at time.Time) (*core.Lock, error) {
	_, keep := j.spans(at)
	return j.c.Lock(j.markName(at), &core.LockOptions{TTL: keep, AtLeast: keep, ReleaseInBackground: true})
}

// Once calls fn for the tick that is due now, unless another host has taken
// that tick. Once returns when fn has returned. Use Once in a program that
// cron, a systemd timer or a similar scheduler starts at each tick. If the next
// tick is due within a tenth of Late and within a second, Once waits for it.
//
// If another host has taken the tick, Once does not call fn, and its error wraps core.ErrHeld.
// If the last tick is more than Late old, or the previous run did not end in time, Once does
// not call fn, and its error wraps ErrLate. Any other error comes from the store or from fn.
// If the lease was lost, the error of fn is joined with the cause of the loss.
func (j *Job) Once(ctx context.Context, fn func(context.Context, Tick) error) error {
	at, late := j.due()
	if at.IsZero() {
		err := fmt.Errorf("%w: none was due in the %v before %s", ErrLate, late, j.now().Format(time.RFC3339))
		if next := j.next(j.now()); !next.IsZero() {
			err = fmt.Errorf("%w, the next is due at %s", err, next.Format(time.RFC3339))
		}
		return j.wrap(err)
	}
	for d := -j.age(at); d > 0; d = -j.age(at) {
		if !sleep(ctx, min(d, nap)) {
			return j.wrap(ctx.Err())
		}
	}
	r := j.attempt(ctx, at, false, fn)
	if late, _ := j.spans(at); r.outcome == open && ctx.Err() == nil && j.age(at) >= late {
		why := r.err
		if r.outcome, r.err = j.settle(ctx, at); r.outcome == missed {
			r.err = fmt.Errorf("%w: %s", ErrLate, strings.TrimPrefix(why.Error(), ErrLate.Error()+": "))
		}
	}
	j.tell(r.event(j.name, at))
	return j.wrap(r.err)
}

// Take is like Once, for work that is not a function. It returns the tick, and the caller must
// release the tick's Lease. The end of ctx ends only the wait for the tick, not the Lease. Take
// returns an error in the cases in which Once does not call fn. The Close method of [core.Client]
// does not wait until the caller has released the Lease.
func (j *Job) Take(ctx context.Context) (Tick, error) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	taken, ended := make(chan Tick, 1), make(chan error, 1)
	go func() {
		defer cancel()
		ended <- j.Once(work, func(ctx context.Context, t Tick) error {
			if !stop() {
				return context.Canceled // ctx has ended, so Take returns an error
			}
			taken <- t
			<-ctx.Done()
			return nil
		})
	}()
	select {
	case t := <-taken:
		return t, nil
	case err := <-ended:
		if over := ctx.Err(); over != nil && !errors.Is(err, over) {
			err = fmt.Errorf("%w: %w", over, err)
		}
		return Tick{}, err
	}
}

func (j *Job) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tick of %q: %w", j.name, err)
}

// The due method returns the tick to run now. That is the next tick if it is due very soon, or else
// the last tick if that tick is at most Late old. If there is no such tick, due returns the zero
// time. It also returns the tick's Late.
func (j *Job) due() (at time.Time, late time.Duration) {
	now := j.now()
	if next := j.next(now); !next.IsZero() {
		if late, _ := j.spans(next); next.Sub(now) <= min(late/10, time.Second) {
			return next, late
		}
	}
	for back := time.Second; ; back *= 2 {
		at := j.next(now.Add(-back))
		switch {
		case !at.IsZero() && !at.After(now):
			for next := j.next(at); !next.IsZero() && !next.After(now); next = j.next(at) {
				at = next
			}
			if late, _ = j.spans(at); now.Sub(at) > late {
				return time.Time{}, late
			}
			return at, late
		case back > max(maxLate, j.opts.Late):
			return time.Time{}, max(maxLate, j.opts.Late)
		}
	}
}

// sleep waits for the duration d and returns true. If ctx ends first, sleep returns false at once.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
