package tick

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Kind says what an [Event] is about.
type Kind int

// The kinds of events. Run reports each tick in one event, except a tick that other hosts may still
// run when Run ends.
const (
	Ran       Kind = iota + 1 // the function ran here; Err is the function's error, joined with the cause if the lease was lost
	Elsewhere                 // another host has taken the tick; Err is the *core.HeldError, if any
	Missed                    // no host has run the tick, and none will; Err says why this host did not
	Unknown                   // not run here, and it is unknown whether another host ran it; Err says why
)

// String returns the kind in lower case.
func (k Kind) String() string {
	if k < Ran || k > Unknown {
		return "no kind"
	}
	return [...]string{Ran: "ran", Elsewhere: "elsewhere", Missed: "missed", Unknown: "unknown"}[k]
}

// Event says what happened to a tick.
type Event struct {
	Kind Kind
	Job  string
	At   time.Time // when the tick was due
	// Ticks is the number of ticks that the event reports, from At to Until. For kind Unknown, Ticks
	// is at most 100,000, and for other kinds it is 1.
	Ticks int
	Until time.Time
	Token uint64        // token of the lease, for Ran
	Took  time.Duration // duration of the function, for Ran
	Err   error
}

// maxGap bounds the number of ticks that one event of kind Unknown reports, because the wall clock
// may be set forward by years.
const maxGap = 100_000

// event returns the Event of a result.
func (r result) event(job string, at time.Time) Event {
	kind := [...]Kind{open: Unknown, ran: Ran, elsewhere: Elsewhere, missed: Missed, doubtful: Unknown}[r.outcome]
	return Event{Kind: kind, Job: job, At: at, Until: at, Ticks: 1, Token: r.token, Took: r.took, Err: r.err}
}

func (j *Job) tell(ev Event) {
	level := slog.LevelDebug
	if ev.Kind == Missed || ev.Kind == Unknown || ev.Kind == Ran && ev.Err != nil {
		level = slog.LevelWarn
	}
	j.told <- struct{}{}
	defer func() { <-j.told }()
	j.opts.Logger.Log(context.Background(), level, "tick "+ev.Kind.String(), "job", ev.Job, "at", ev.At, "ticks", ev.Ticks,
		"token", ev.Token, "took", ev.Took, "err", ev.Err)
	if j.opts.OnEvent != nil {
		j.opts.OnEvent(ev)
	}
}

// Run calls fn for each tick from now on that no other host takes, until parent ends. It
// returns after all calls of fn have returned. Ticks run one after another or, with Overlap,
// each in a new goroutine. The ctx of fn ends when Tick.Lease is lost, parent ends, or the
// client closes. Then fn must return.
//
// If the store cannot be reached, Run tries each tick again until the tick is Late old. After
// parent has ended, Run returns an error that wraps parent.Err(). While parent lives, Run returns
// only if an error such as core.ErrClosed makes every later tick fail.
func (j *Job) Run(parent context.Context, fn func(context.Context, Tick) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	r := &run{Job: j, fn: fn, cancel: cancel, more: make(chan struct{}, 1)}
	r.working.Go(func() { r.settleAll(ctx) })
	defer r.end()
	for next := j.next(j.now()); r.wait(ctx, &next); {
		at := r.skip(next)
		if next = at; at.IsZero() || j.age(at) < 0 {
			continue
		}
		next = j.next(at)
		if j.opts.Overlap {
			r.working.Go(func() { r.turn(ctx, at) })
		} else {
			r.turn(ctx, at)
		}
	}
	err := context.Cause(ctx)
	if over := parent.Err(); over != nil && !errors.Is(err, over) {
		err = fmt.Errorf("%w: %w", over, err)
	}
	return j.wrap(err)
}

// run is the state of one call of Run.
type run struct {
	*Job
	fn      func(context.Context, Tick) error
	cancel  context.CancelCauseFunc
	working sync.WaitGroup
	more    chan struct{} // buffer of 1; gets a value when the late slice has grown
	latest  time.Time     // the latest time that the wait method has read

	mu   sync.Mutex
	late []lateTick // ticks to settle, oldest first
}

// lateTick is a tick that this host could not run in time.
type lateTick struct {
	at  time.Time
	err error // why it was not run
}

// wait waits until t=*at, or for ever if *at is zero. It returns false when ctx ends. If the wall
// clock is set back by more than half of Keep, it changes *at to the first tick after the new time.
func (r *run) wait(ctx context.Context, at *time.Time) bool {
	for ctx.Err() == nil {
		now := r.now().Round(0)
		if _, keep := r.spans(*at); r.latest.Sub(now) > keep/2 {
			r.opts.Logger.Warn("tick: the wall clock was set back", "job", r.name, "from", r.latest, "to", now)
			r.latest, *at = now, r.next(now)
		}
		if now.After(r.latest) {
			r.latest = now
		}
		d := nap
		if !at.IsZero() {
			d = min(d, -r.age(*at))
		}
		if d <= 0 {
			return true
		}
		sleep(ctx, d)
	}
	return false
}

// The skip method returns the first tick at or after t=at that is at most half of Keep old. The
// store may have forgotten whether an older tick was taken, so skip reports older ticks as Unknown.
func (r *run) skip(at time.Time) time.Time {
	ev := Event{Kind: Unknown, Job: r.name, At: at, Err: errForgotten}
	for _, keep := r.spans(at); r.age(at) > keep/2; _, keep = r.spans(at) {
		ev.Until = at
		if ev.Ticks++; ev.Ticks == maxGap {
			at = r.now().Add(-keep / 2)
		}
		if at = r.next(at); at.IsZero() {
			break
		}
	}
	if ev.Ticks > 0 {
		r.tell(ev)
	}
	return at
}

// turn tries to run the tick due at t=at. If the outcome is open, turn adds the tick to r.late.
func (r *run) turn(ctx context.Context, at time.Time) {
	res := result{err: ErrLate}
	if late, _ := r.spans(at); r.age(at) <= late {
		res = r.attempt(ctx, at, true, r.fn)
	}
	if res.outcome != open {
		r.tell(res.event(r.name, at))
		return
	}
	if late, _ := r.spans(at); ctx.Err() != nil && r.age(at) <= late {
		return // other hosts may still run the tick
	}
	r.mu.Lock()
	r.late = append(r.late, lateTick{at, res.err})
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
	if pointless(res.err) {
		r.cancel(res.err)
	}
}

// settleAll calls settle for the ticks in r.late, until ctx ends. While the store does not answer,
// settleAll tries once a second.
func (r *run) settleAll(ctx context.Context) {
	for ctx.Err() == nil {
		tick, ok := r.oldest()
		if !ok {
			select {
			case <-r.more:
			case <-ctx.Done():
			}
			continue
		}
		res := result{outcome: doubtful}
		var err error
		switch late, keep := r.spans(tick.at); {
		case r.age(tick.at) < -keep/2: // the clock was set back, and later ticks wait behind this one
		case r.age(tick.at) < late:
			sleep(ctx, min(nap, late-r.age(tick.at)))
			continue
		case r.age(tick.at) <= keep/2:
			res.outcome, err = r.settle(ctx, tick.at)
		}
		if res.outcome == open {
			sleep(ctx, nap)
			continue
		}
		if res.err = tick.err; res.outcome == elsewhere {
			res.err = err
		}
		r.mu.Lock()
		r.late = r.late[1:]
		r.mu.Unlock()
		r.tell(res.event(r.name, tick.at))
	}
}

func (r *run) oldest() (lateTick, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.late) == 0 {
		return lateTick{}, false
	}
	return r.late[0], true
}

// end waits until all calls of fn have returned, and reports the remaining late ticks as Unknown.
func (r *run) end() {
	r.cancel(nil)
	r.working.Wait()
	for _, tick := range r.late {
		r.tell(result{err: tick.err}.event(r.name, tick.at))
	}
}
