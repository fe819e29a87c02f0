// Package tick runs a function once for each tick of a schedule, over all hosts
// that share a backend. A tick is a moment at which a [Job] is due.
//
//	job, err := tick.New(client, "refresh", tick.Every(time.Minute), nil)
//	...
//	err = job.Run(ctx, func(ctx context.Context, t tick.Tick) error {
//		return refresh(ctx, t.Lease.Token())
//	})
//
// # What is guaranteed
//
// No tick is run twice while three conditions hold. The store keeps its
// grants (docs/backends.md lists for each backend what breaks that, and
// ending the tick's lock by hand is on that list). The wall clocks of two
// hosts are apart by less than 49 hundredths of [Options] Keep. And all
// hosts give a job the same name, schedule, Late and Keep.
//
// A pause of a process changes nothing, however long and at whatever instruction.
// Neither does its death, or that of its plugin or machine: a tick whose function
// was killed in mid-run is not run again.
//
// Without Overlap no tick is run beside the one before. That is the guarantee of a
// lock: a function whose lease is lost must stop when its ctx ends, and a pause
// after its last look at the clock is met by the token alone (see package core).
//
// A tick is not run when, from its time until Late after it,
//   - every host was stopped, or away from the store;
//   - the run before had not ended, or a host that was paused had the job's lock until
//     the TTL was over, without Overlap: let Late be more than that TTL;
//   - or the host that had taken it was killed, or paused for too long, between the
//     store's grant and the first instruction of the function: some 100 us.
//
// # What is told
//
// Exactly one host reports [Missed] for a tick that no host has run, and afterwards
// no host will run it. It reports as soon as it is back, for half of Keep after the
// tick. A tick that a host cannot ask about any more is [Unknown]. If the host that
// took a tick was killed, no host reports it, whether or not its function had begun.
//
// # How
//
// A job uses two kinds of locks. NAME keeps runs apart: it is held, and
// renewed, while the function runs. NAME@TIME belongs to the tick and
// remembers that the tick was taken. It is acquired under NAME, just before
// the function, and the store keeps it for Keep from the grant, whatever
// happens to its host (core's AtLeast). A host that finds it held leaves the
// tick alone. A host that acquires it looks at its wall clock after the
// answer, and gives the tick up if the time is past Late.
//
// Why no tick is run twice: suppose that the store granted NAME@T to host A and
// then to host B, and that both ran it. A asked when its own clock showed T or later.
// The store had the grant for Keep after that, by a clock that is at most a hundredth
// faster. B's answer came when B's own clock showed T + Keep/2 at the latest. With
// clocks apart by less than Keep/2 - Keep/100 that is before A's grant was over, so
// the store did not make B's. Between answer and function B may be paused for any
// time: no other host is granted the tick meanwhile that could still run it.
//
// Why only one host reports a missed tick: a host that is too late to run it, but
// not later than Keep/2, acquires NAME@T all the same. By the argument above the
// store grants NAME@T only if no host has run the tick, and afterwards none can.
package tick

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockbench/lockbench/core"
)

const (
	// minKeep is the least default of Keep: clocks may then be apart by 29 s.
	minKeep = time.Minute
	// maxLate is the largest default of Late.
	maxLate = time.Hour
	// nap bounds a sleep: timers stand still while the machine is suspended, and
	// the wall clock may be set.
	nap = time.Second
)

// ErrLate means that the tick is over for this host: its time is more than Late ago.
var ErrLate = errors.New("too late for the tick")

// errForgotten means that the store may have forgotten whether the tick was taken.
var errForgotten = fmt.Errorf("%w: it is more than half of Keep ago", ErrLate)

// Schedule says when a job is due. All hosts must get the same ticks from it: New
// refuses a schedule that counts from when it is asked, as @every of a cron library
// does. A Schedule of github.com/robfig/cron/v3 will do; give it a time zone.
type Schedule interface {
	// Next returns the first tick after t, or the zero time when there is none.
	Next(t time.Time) time.Time
}

// Every is a Schedule with a tick at each multiple of d since the zero time, in
// UTC: each full minute for time.Minute, midnight for 24 * time.Hour.
func Every(d time.Duration) Schedule { return every(d) }

type every time.Duration

func (d every) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(d)).Add(time.Duration(d))
}

// Options of a Job. Nil and zero fields mean the defaults. Late and Keep must be
// the same on all hosts.
type Options struct {
	// Late is how long after its time a tick may still be started by a host that was
	// away, or that has waited for the run before. Default: until the next tick, at
	// most an hour, and at most half of Keep or of the backend's longest TTL.
	Late time.Duration
	// Keep is how long the store remembers that a tick was taken, at least
	// 2 * Late; the store has that many ticks' locks at a time. It is rounded up to
	// what the backend can do. Wall clocks of hosts may be apart by less than
	// 49 hundredths of it. Default 2 * Late, at least a minute or the backend's
	// longest TTL.
	Keep time.Duration
	// Lock has the options of the lock under which the function runs, such as TTL
	// and MaxHold. ReleaseInBackground is always set. Unused with Overlap.
	Lock core.LockOptions
	// Overlap lets a tick run beside those before it, on this host too. The
	// function then runs under the tick's own lock, with a TTL of Keep, whose tokens
	// do not rise from tick to tick.
	Overlap bool
	// Logger gets every Event: Warn for a tick that was missed or is unknown, and
	// for a function that failed, else Debug. Default slog.Default().
	Logger *slog.Logger
	// OnEvent is called for each Event, one at a time, by the goroutines that go on
	// to other ticks: it must return soon. Default nil.
	OnEvent func(Event)
}

// Job is a function that is due at the ticks of a schedule. It is safe for use by
// many goroutines, and needs no closing.
type Job struct {
	c        *core.Client
	name     string
	schedule Schedule
	opts     Options
	lock     *core.Lock       // keeps runs apart; nil with Overlap
	now      func() time.Time // time.Now
	told     chan struct{}    // one slot, held while an event is delivered
}

// Tick is one tick that this host runs.
type Tick struct {
	At time.Time // when it is due
	// Lease is the lease under which the function runs. Its tokens rise from
	// tick to tick, unless the job has Overlap.
	Lease *core.Lease
}

// New returns the job of that name, which is also the name of its lock: the
// names of ticks' locks are longer by at most 31 bytes. Bad names, schedules
// and options are an error that wraps [core.ErrInvalid]. Nothing is sent.
func New(c *core.Client, name string, s Schedule, opts *Options) (*Job, error) {
	j := &Job{c: c, name: name, schedule: s, now: time.Now, told: make(chan struct{}, 1)}
	if opts != nil {
		j.opts = *opts
	}
	if j.opts.Logger == nil {
		j.opts.Logger = slog.Default()
	}
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
	case o.Keep > 0 && o.Keep < 2*o.Late:
		return fmt.Errorf("%w: Keep %v is less than twice Late %v", core.ErrInvalid, o.Keep, o.Late)
	case !first.IsZero() && (!first.After(now) || !j.next(first.Add(-1)).Equal(first)):
		return fmt.Errorf("%w: the schedule counts from when it is asked, so that hosts would not agree about ticks: take tick.Every", core.ErrInvalid)
	}
	longest := time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	if _, err = j.mark(longest); err != nil || o.Overlap {
		return err
	}
	o.Lock.ReleaseInBackground = true // a store that is away must not hold up the next tick
	j.lock, err = j.c.Lock(j.name, &o.Lock)
	return err
}

// next returns the first tick after t, by the wall clock alone.
func (j *Job) next(t time.Time) time.Time { return j.schedule.Next(t.Round(0)).Round(0) }

// age returns how long ago at is, by the wall clock: at has no monotonic reading.
func (j *Job) age(at time.Time) time.Duration { return j.now().Sub(at) }

// spans returns Late and Keep for one tick. Late is at most half of Keep.
func (j *Job) spans(at time.Time) (late, keep time.Duration) {
	p := j.c.Properties()
	late, keep = j.opts.Late, j.opts.Keep
	if late == 0 {
		late = min(maxLate, p.TTLMax/2)
		if next := j.next(at); !next.IsZero() {
			late = min(late, next.Sub(at))
		}
		if keep > 0 {
			late = min(late, keep/2)
		}
	}
	if keep == 0 {
		keep = max(2*late, min(minKeep, p.TTLMax))
	}
	keep = max(keep, p.TTLMin)
	return late, (keep + p.TTLStep - 1) / p.TTLStep * p.TTLStep
}

// markName returns the name of the lock of a tick.
func (j *Job) markName(at time.Time) string {
	return j.name + "@" + at.UTC().Format(time.RFC3339Nano)
}

// mark returns the lock that remembers that a tick was taken.
func (j *Job) mark(at time.Time) (*core.Lock, error) {
	_, keep := j.spans(at)
	return j.c.Lock(j.markName(at), &core.LockOptions{TTL: keep, AtLeast: keep, ReleaseInBackground: true})
}

// Once runs fn for the tick that is due now, unless another host runs or has
// run it, and returns when fn has. It is for schedulers with their own clock
// that call it at each tick, such as cron or a timer of systemd. Once waits
// for a tick that is due within a tenth of Late, at most a second.
//
// The error satisfies errors.Is(err, core.ErrHeld) when another host has the tick.
// It satisfies errors.Is(err, ErrLate) when it was too late for the last tick, or
// the run before has not ended in time. fn was not called then. Otherwise it is
// fn's error, with the cause if its lease was lost, or the store's.
func (j *Job) Once(ctx context.Context, fn func(context.Context, Tick) error) error {
	at := j.due()
	if at.IsZero() {
		return j.wrap(fmt.Errorf("%w: none was due in time before %s", ErrLate, j.now().Format(time.RFC3339)))
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
			r.err = fmt.Errorf("%w: %v", ErrLate, why)
		}
	}
	j.tell(r.event(j.name, at))
	return j.wrap(r.err)
}

// Take is Once for work that no function encloses: the tick goes on until
// its Lease is released, or lost. It does not end with ctx, which only
// bounds the wait for it. The errors are those of Once where fn was not
// called. [core.Client] Close does not wait for work under the Lease.
func (j *Job) Take(ctx context.Context) (Tick, error) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	taken, ended := make(chan Tick, 1), make(chan error, 1)
	go func() {
		defer cancel()
		ended <- j.Once(work, func(ctx context.Context, t Tick) error {
			if !stop() {
				return context.Canceled // there is no caller any more
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

// due returns the tick to run now: the last one unless that is too long ago,
// or the next one if it is due at once. It is zero for none.
func (j *Job) due() time.Time {
	now := j.now()
	if next := j.next(now); !next.IsZero() {
		if late, _ := j.spans(next); next.Sub(now) <= min(late/10, time.Second) {
			return next
		}
	}
	for back := time.Second; ; back *= 2 {
		at := j.next(now.Add(-back))
		switch {
		case !at.IsZero() && !at.After(now):
			for next := j.next(at); !next.IsZero() && !next.After(now); next = j.next(at) {
				at = next
			}
			if late, _ := j.spans(at); now.Sub(at) > late {
				return time.Time{}
			}
			return at
		case back > max(maxLate, j.opts.Late):
			return time.Time{}
		}
	}
}

// sleep pauses for d. It returns false, at once, when ctx ends.
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
