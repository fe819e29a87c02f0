package tick

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/plugins/memory"
)

func TestOnceEachTick(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for range 3 {
			w.host(Every(time.Second), Options{})
		}
		w.run(60*time.Second+time.Second/2, 300*time.Millisecond, nil)
		if len(w.runs) != 60 || w.beside {
			t.Errorf("%d ticks were run, beside each other: %t", len(w.runs), w.beside)
		}
		if n := len(w.told(Ran)) + len(w.told(Elsewhere)); n != 180 {
			t.Errorf("%d events for 60 ticks on 3 hosts", n)
		}
		w.wantTold(Missed)
		w.wantTold(Unknown)
	})
}

// TestLongRun checks that no second tick starts while the function runs. Exactly one host must
// report each tick that is missed during a long run.
func TestLongRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for range 3 {
			w.host(Every(time.Second), Options{Late: 400 * time.Millisecond})
		}
		w.run(8*time.Second+900*time.Millisecond, 2500*time.Millisecond, nil)
		if w.beside {
			t.Error("two ran beside each other")
		}
		if len(w.runs) != 3 || len(w.told(Ran)) != 3 {
			t.Errorf("run: %v", w.runs)
		}
		w.wantTold(Missed, 2*time.Second, 3*time.Second, 5*time.Second, 6*time.Second, 8*time.Second)
	})
}

// TestToldWhileTheRunGoesOn checks that ticks that are missed in an endless run are reported. The
// report must come during that run, even if Late is as long as the time between two ticks.
func TestToldWhileTheRunGoesOn(t *testing.T) {
	for _, every := range []time.Duration{time.Second, time.Minute} {
		bubble(t, func(t *testing.T, w *world) {
			for range 3 {
				h := w.host(Every(every), Options{})
				h.b.granted = func(string) { time.Sleep(10 * time.Millisecond) } // the store's answer takes this long
			}
			w.run(10*every+every/2, time.Hour, func() {
				time.Sleep(8*every + every/2)
				w.mu.Lock()
				defer w.mu.Unlock()
				w.wantTold(Missed, 2*every, 3*every, 4*every, 5*every, 6*every, 7*every)
			})
			w.wantTold(Unknown)
		})
	}
}

// When the client closes or ctx ends, Run must return, with an error that wraps the cause.
func TestClosed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.host(Every(time.Second), Options{}), w.host(Every(time.Second), Options{})
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- a.Run(t.Context(), w.work(a, 0)) }()
		go func() { ended <- b.Run(ctx, w.work(b, 0)) }()
		time.Sleep(2500 * time.Millisecond)
		_ = a.client.Close(t.Context())
		if err := <-ended; !errors.Is(err, core.ErrClosed) || errors.Is(err, context.Canceled) {
			t.Errorf("after Close: %v", err)
		}
		cancel(cause)
		if err := <-ended; !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of its ctx: %v", err)
		}
	})
}

// TestAfterTheRunBefore checks that a tick waits for the previous run, and is run if that run ends
// before the tick is more than Late old.
func TestAfterTheRunBefore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for range 3 {
			w.host(Every(time.Second), Options{})
		}
		w.run(10*time.Second-time.Millisecond, 1100*time.Millisecond, nil)
		if w.beside || len(w.runs) < 8 {
			t.Errorf("run: %v, beside each other: %t", w.runs, w.beside)
		}
	})
}

func TestOverlap(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for range 3 {
			w.host(Every(time.Second), Options{Overlap: true})
		}
		w.run(10*time.Second+time.Second/2, 2500*time.Millisecond, nil)
		if len(w.runs) != 10 || !w.beside {
			t.Errorf("%d ticks were run, beside each other: %t", len(w.runs), w.beside)
		}
		w.wantTold(Missed)
	})
}

// TestStoreAway checks that exactly one host reports each tick that is missed in an outage.
func TestStoreAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for range 3 {
			w.host(Every(time.Second), Options{})
		}
		away := func(is bool) {
			for _, h := range w.hosts {
				h.b.away.Store(is)
			}
		}
		w.run(20*time.Second+time.Second/2, 100*time.Millisecond, func() {
			time.Sleep(4*time.Second + 500*time.Millisecond)
			away(true)
			time.Sleep(5 * time.Second)
			away(false)
		})
		// The tick of 9 s is run late, when the store answers again at 9.5 s.
		w.wantTold(Missed, 5*time.Second, 6*time.Second, 7*time.Second, 8*time.Second)
		w.wantTold(Unknown)
		if len(w.runs) != 16 {
			t.Errorf("%d ticks were run: %v", len(w.runs), w.runs)
		}
	})
}

// In TestRefused, the store is read-only for a while, or the job's lock is lost before the function
// begins. The tick must still be run before it is more than Late old.
func TestRefused(t *testing.T) {
	for _, overlap := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			h := w.host(Every(time.Minute), Options{Late: 30 * time.Second, Overlap: overlap})
			w.run(150*time.Second, 0, func() {
				time.Sleep(119 * time.Second) // during this time the store serves the client
				h.b.denies.Store(true)
				time.Sleep(11 * time.Second)
				h.b.denies.Store(false)
			})
			w.wantTold(Ran, time.Minute, 2*time.Minute)
		})
	}
	bubble(t, func(t *testing.T, w *world) {
		h := w.host(Every(time.Minute), Options{Late: 30 * time.Second, Lock: core.LockOptions{TTL: 2 * time.Second}})
		first := true
		h.b.granted = func(name string) {
			if name != "job" && first {
				first = false
				h.b.revoked.Store(true)
				time.Sleep(time.Second) // time for a renewal of the lease
				h.b.revoked.Store(false)
			}
		}
		w.run(70*time.Second, 0, nil)
		w.wantTold(Ran, time.Minute)
	})
}

// TestClocksStep sets the hosts' clocks at random while ticks run. The test checks that no tick is
// run twice, that at most one host reports a tick as missed, and that no tick that was run is
// reported as missed.
func TestClocksStep(t *testing.T) {
	for seed := range uint64(60) {
		bubble(t, func(t *testing.T, w *world) {
			draw := rand.New(rand.NewPCG(seed, 0))
			var over atomic.Bool
			for range 3 {
				h := w.host(Every(time.Second), Options{Late: time.Second, Keep: 20 * time.Second, Lock: core.LockOptions{TTL: 2 * time.Second}})
				var apart atomic.Int64 // clocks of two hosts differ by less than 9.8 s
				h.now = func() time.Time { return time.Now().Add(time.Duration(apart.Load())) }
				steps, answers := rand.New(rand.NewPCG(seed, draw.Uint64())), rand.New(rand.NewPCG(seed, draw.Uint64()))
				var mu sync.Mutex
				h.b.granted = func(string) {
					mu.Lock()
					slow := answers.IntN(10) == 0
					d := time.Duration(answers.Int64N(int64(3 * time.Second)))
					mu.Unlock()
					if slow && !over.Load() {
						time.Sleep(d)
					}
				}
				go func() {
					for !over.Load() {
						time.Sleep(time.Duration(steps.Int64N(int64(8 * time.Second))))
						apart.Store(steps.Int64N(int64(9700*time.Millisecond)) - int64(4850*time.Millisecond))
						h.b.away.Store(!over.Load() && steps.IntN(3) == 0)
					}
				}()
			}
			takes := time.Duration(draw.Int64N(int64(1500 * time.Millisecond)))
			w.run(90*time.Second, takes, func() {
				time.Sleep(75 * time.Second)
				over.Store(true)
			})
			missed, unknown := w.told(Missed), w.told(Unknown)
			for at := 10 * time.Second; at < 60*time.Second; at += time.Second {
				run, told := len(w.runs[at]), 0
				for _, m := range missed {
					if m == at {
						told++
					}
				}
				if run > 1 || run+told > 1 || run+told == 0 && !slices.Contains(unknown, at) {
					t.Errorf("seed %d: the tick at %v: run %d times, told to be missed %d times, unknown: %t", seed, at, run, told, slices.Contains(unknown, at))
				}
			}
			if len(w.runs) < 15 {
				t.Errorf("seed %d: %d ticks were run", seed, len(w.runs))
			}
		})
	}
}

// TestOneClient runs two Jobs with the same name through one client. The two Jobs must share the
// ticks as two hosts do.
func TestOneClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := w.host(Every(time.Second), Options{})
		opts := h.opts
		opts.Lock = core.LockOptions{}
		other, err := New(h.client, "job", Every(time.Second), &opts)
		if err != nil {
			t.Fatal(err)
		}
		w.hosts = append(w.hosts, &host{Job: other, b: h.b, client: h.client})
		w.run(20*time.Second+time.Second/2, 300*time.Millisecond, nil)
		if len(w.runs) != 20 || w.beside {
			t.Errorf("%d ticks were run, beside each other: %t", len(w.runs), w.beside)
		}
		w.wantTold(Missed)
	})
}

// TestAwayTooLong checks that after an outage, a host reports ticks older than half of Keep as
// Unknown, and younger ticks as Missed.
func TestAwayTooLong(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := w.host(Every(time.Second), Options{Keep: 10 * time.Second})
		w.run(20*time.Second+time.Second/2, 0, func() {
			time.Sleep(500 * time.Millisecond)
			h.b.away.Store(true)
			time.Sleep(10 * time.Second)
			h.b.away.Store(false)
		})
		w.wantTold(Unknown, 1*time.Second, 2*time.Second, 3*time.Second, 4*time.Second, 5*time.Second)
		w.wantTold(Missed, 6*time.Second, 7*time.Second, 8*time.Second, 9*time.Second)
	})
}

// TestPausedAfterTheGrant pauses a host between the grant of the tick's lock and the answer. After
// too long a pause, the host must not run the tick, whether or not the timer for Late has fired.
func TestPausedAfterTheGrant(t *testing.T) {
	for _, tt := range []struct {
		pause time.Duration
		timer bool // the timer fires before the answer is read
		want  outcome
	}{
		{900 * time.Millisecond, false, ran},
		{1500 * time.Millisecond, false, missed},
		{31 * time.Second, false, doubtful},
		{900 * time.Millisecond, true, ran},
		{1500 * time.Millisecond, true, open},
		{31 * time.Second, true, open},
	} {
		bubble(t, func(t *testing.T, w *world) {
			h := w.host(Every(10*time.Second), Options{Late: time.Second, Lock: core.LockOptions{TTL: time.Hour}})
			var ahead time.Duration
			h.now = func() time.Time { return time.Now().Add(ahead) }
			h.b.granted = func(name string) {
				switch {
				case name == "job":
				case tt.timer:
					time.Sleep(tt.pause)
				default:
					ahead = tt.pause
				}
			}
			at := h.next(time.Now())
			time.Sleep(time.Until(at))
			began := false
			r := h.attempt(t.Context(), at, true, func(context.Context, Tick) error { began = true; return nil })
			if r.outcome != tt.want || began != (tt.want == ran) {
				t.Errorf("%v, timer first: %t: outcome %v, began: %t, %v", tt.pause, tt.timer, r.outcome, began, r.err)
			}
		})
	}
}

// TestClocksApart checks that no tick is run twice if one host's clock is behind by as much as
// Options.Keep allows.
func TestClocksApart(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Second, 20 * time.Second, 29 * time.Second} {
		t.Run(apart.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.host(Every(time.Second), Options{Late: 15 * time.Second, Keep: time.Minute})
				behind := w.host(Every(time.Second), Options{Late: 15 * time.Second, Keep: time.Minute})
				behind.now = func() time.Time { return time.Now().Add(-apart) }
				w.run(2*time.Minute, 0, nil)
				if len(w.runs) < 119 {
					t.Errorf("%d ticks were run", len(w.runs))
				}
				w.wantTold(Missed)
			})
		})
	}
}

// TestSuspended checks that after a suspend, a host at once reports the ticks that were due during
// the suspend, and then runs ticks again.
func TestSuspended(t *testing.T) {
	for _, years := range []int{0, 50} {
		bubble(t, func(t *testing.T, w *world) {
			h := w.host(Every(time.Second), Options{})
			var ahead atomic.Int64
			h.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			var gaps []Event
			tell := h.opts.OnEvent
			h.opts.OnEvent = func(ev Event) {
				tell(ev)
				if ev.Ticks > 1 {
					gaps = append(gaps, ev)
				}
			}
			w.run(10*time.Second, 0, func() {
				time.Sleep(4500 * time.Millisecond)
				ahead.Store(int64(time.Hour) + int64(years)*int64(365*24*time.Hour))
			})
			if len(gaps) != 1 || gaps[0].Kind != Unknown || years == 0 && gaps[0].Ticks != 3570 || years > 0 && gaps[0].Ticks != maxGap {
				t.Errorf("%d years: gaps %+v", years, gaps)
			}
			if n := len(w.told(Missed)); n < 28 || n > 31 {
				t.Errorf("%d years: %d missed", years, n)
			}
			if n := len(w.runs); n < 8 {
				t.Errorf("%d years: %d were run", years, n)
			}
		})
	}
}

// TestSetBack checks that a host whose clock was an hour ahead runs ticks again
// as soon as the clock is right.
func TestSetBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := w.host(Every(time.Second), Options{})
		h.b.away.Store(true) // so that the ticks of the wrong hour are not run, and wait in the late slice
		var ahead atomic.Int64
		ahead.Store(int64(time.Hour))
		h.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		w.run(10*time.Second+time.Second/2, 0, func() {
			time.Sleep(4500 * time.Millisecond)
			ahead.Store(0)
			time.Sleep(3600 * time.Millisecond)
			h.b.away.Store(false)
		})
		if n := len(w.told(Ran)); n < 2 {
			t.Errorf("%d ticks were run, want one each second that the store serves", n)
		}
		if n := len(w.told(Missed)); n < 1 {
			t.Error("the ticks of the right time, while the store was away, were not told as missed")
		}
	})
}

func TestOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.host(Every(time.Minute), Options{Late: 10 * time.Second}), w.host(Every(time.Minute), Options{Late: 10 * time.Second})
		nothing := func(context.Context, Tick) error { return nil }
		time.Sleep(time.Minute - time.Millisecond) // just before the tick, because the timer that starts Once may fire early
		if err := a.Once(t.Context(), nothing); err != nil {
			t.Error(err)
		}
		err := b.Once(t.Context(), nothing)
		var held *core.HeldError
		if !errors.As(err, &held) || held.Holder.Label != "host 0" {
			t.Errorf("the tick that a host had: %v", err)
		}
		time.Sleep(11 * time.Second)
		if err := a.Once(t.Context(), nothing); !errors.Is(err, ErrLate) {
			t.Errorf("too late: %v", err)
		}
		time.Sleep(49 * time.Second)
		failed := errors.New("no disk")
		if err := a.Once(t.Context(), func(context.Context, Tick) error { return failed }); !errors.Is(err, failed) {
			t.Error(err)
		}
	})
}

// TestTake checks that the Lease of a taken tick lasts until its release, even if ctx ends earlier.
func TestTake(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.host(Every(time.Minute), Options{}), w.host(Every(time.Minute), Options{})
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		tick, err := a.Take(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := b.Take(t.Context()); !errors.Is(err, core.ErrHeld) {
			t.Errorf("a tick that another host has: %v", err)
		}
		time.Sleep(time.Minute)
		if !tick.Lease.Valid() || tick.At != w.origin.Add(time.Minute).Round(0) {
			t.Errorf("after a minute: %v, tick of %v", tick.Lease.Err(), tick.At)
		}
		brief, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if _, err := b.Take(brief); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside it, until ctx ended: %v", err)
		}
		if err := tick.Lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		next, err := b.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		w.wantTold(Ran, time.Minute, 2*time.Minute)
	})
}

// TestTakeWithoutTheTicksLock checks that the lease of the job's lock
// survives the loss of the tick's lock, because the holder may still work.
func TestTakeWithoutTheTicksLock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := w.host(Every(time.Minute), Options{})
		time.Sleep(time.Minute)
		tick, err := h.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h.b.broken.Store(true)
		time.Sleep(5 * time.Minute)
		if !tick.Lease.Valid() {
			t.Errorf("the job's lease: %v", tick.Lease.Err())
		}
		if err := tick.Lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestOnceBesideTheRunBefore checks that Once returns ErrLate if the previous run ends too late.
func TestOnceBesideTheRunBefore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.host(Every(time.Minute), Options{Late: 10 * time.Second}), w.host(Every(time.Minute), Options{Late: 10 * time.Second})
		time.Sleep(time.Minute)
		ended := make(chan error)
		go func() {
			ended <- a.Once(context.Background(), func(context.Context, Tick) error { time.Sleep(90 * time.Second); return nil })
		}()
		time.Sleep(time.Minute)
		if err := b.Once(t.Context(), func(context.Context, Tick) error { return nil }); !errors.Is(err, ErrLate) || errors.Is(err, core.ErrHeld) || strings.Count(err.Error(), ErrLate.Error()) != 1 {
			t.Errorf("beside the run before: %v", err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.wantTold(Missed, 2*time.Minute)
	})
}

// fromNow is a schedule without fixed ticks, because it counts from the time of each call.
type fromNow struct{}

func (fromNow) Next(t time.Time) time.Time { return t.Add(time.Minute) }

// last is a schedule with a single tick.
type last time.Time

func (s last) Next(t time.Time) time.Time {
	if t.Before(time.Time(s)) {
		return time.Time(s)
	}
	return time.Time{}
}

func TestScheduleThatEnds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.host(last(time.Now().Add(3*time.Second)), Options{})
		w.run(time.Hour, 0, nil)
		w.wantTold(Ran, 3*time.Second)
	})
}

func TestBadJobs(t *testing.T) {
	c := core.New(memory.NewStore().Open(), nil)
	defer c.Close(context.Background())
	for name, tt := range map[string]struct {
		s    Schedule
		opts Options
	}{
		"no interval":          {Every(0), Options{}},
		"negative interval":    {Every(-time.Second), Options{}},
		"counts from now":      {fromNow{}, Options{}},
		"negative Late":        {Every(time.Second), Options{Late: -1}},
		"Keep too short":       {Every(time.Second), Options{Late: time.Second, Keep: 3 * time.Second}},
		"Keep beyond the TTL":  {Every(time.Second), Options{Keep: 25 * time.Hour}},
		"options of the lock":  {Every(time.Second), Options{Lock: core.LockOptions{TTL: -1}}},
		"Late beyond the TTLs": {Every(24 * time.Hour), Options{Late: 13 * time.Hour}},
	} {
		if _, err := New(c, "job", tt.s, &tt.opts); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(c, string(make([]byte, 500)), Every(time.Second), nil); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("a name that is too long with a time: %v", err)
	}
}

func TestDefaults(t *testing.T) {
	c := core.New(memory.NewStore().Open(), nil)
	defer c.Close(context.Background())
	for _, tt := range []struct {
		every, late, keep time.Duration
	}{
		{time.Second, time.Second, time.Minute},
		{time.Minute, time.Minute, 4 * time.Minute},
		{24 * time.Hour, time.Hour, 4 * time.Hour},
	} {
		j, err := New(c, "job", Every(tt.every), nil)
		if err != nil {
			t.Fatal(err)
		}
		if late, keep := j.spans(j.next(time.Now())); late != tt.late || keep != tt.keep {
			t.Errorf("every %v: Late %v, Keep %v", tt.every, late, keep)
		}
	}
}
