package proc

import (
	"context"
	"maps"
	"os"
	"sync"
	"time"
)

const (
	beatEvery = 5 * time.Millisecond
	// This process has stalled if the time between two beats is longer than stallAfter.
	stallAfter = 15 * time.Millisecond
)

// Stall is a period in which this process did not run, whatever the reason.
type Stall struct{ From, To time.Time }

// Heartbeat runs every few milliseconds, and notes the periods in which this process did not run.
type Heartbeat struct {
	stop  chan struct{}
	once  sync.Once
	ended sync.WaitGroup

	mu     sync.Mutex
	last   time.Time
	stalls []Stall
}

// StartHeartbeat starts a heartbeat. At every beat it calls the function each, unless each is nil.
// The argument of each is the stall that ended with this beat, or nil if no stall ended with it.
func StartHeartbeat(each func(*Stall)) *Heartbeat {
	h := &Heartbeat{stop: make(chan struct{}), last: time.Now()}
	h.ended.Go(func() {
		t := time.NewTicker(beatEvery)
		defer t.Stop()
		for {
			select {
			case <-h.stop:
				return
			case <-t.C:
				if stall := h.note(time.Now()); each != nil {
					each(stall)
				}
			}
		}
	})
	return h
}

// note records a beat at the time now. It returns the stall that this
// beat ends, or nil if the process has not stalled since the last beat.
func (h *Heartbeat) note(now time.Time) (stall *Stall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.last) > stallAfter {
		stall = &Stall{h.last, now}
		h.stalls = append(h.stalls, *stall)
	}
	if now.After(h.last) {
		h.last = now
	}
	return stall
}

// Stalled returns the total time of all stalls of the process between two times.
func (h *Heartbeat) Stalled(from, to time.Time) (sum time.Duration) {
	h.note(time.Now()) // after a stall, this goroutine may run before the ticker's goroutine
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.stalls {
		if s.From.Before(from) {
			s.From = from
		}
		if s.To.After(to) {
			s.To = to
		}
		sum += max(0, s.To.Sub(s.From))
	}
	return sum
}

// Stop ends the heartbeat and returns all stalls. It may be called more than once.
func (h *Heartbeat) Stop() []Stall {
	h.once.Do(func() { close(h.stop) })
	h.ended.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stalls
}

// Ran calls the function do and returns the time for which this process ran during the call. It
// subtracts the stalls of the process, which a plain stopwatch would include.
func Ran(do func()) time.Duration {
	h := StartHeartbeat(nil)
	defer h.Stop()
	from := time.Now()
	do()
	to := time.Now()
	return to.Sub(from) - h.Stalled(from, to)
}

// Waits notes the times for which threads are ready to run but wait for a processor. A [Heartbeat]
// does not show such waits. Its own thread sleeps most of the time, and the kernel at once runs a
// thread that wakes from sleep. Any goroutine may call the methods of Waits.
type Waits struct {
	mu     sync.Mutex
	before map[int]time.Duration // total wait of each thread at the last call of Look
	found  []wait
}

// wait has the time of one call of Look, and the longest wait since the previous call of Look.
type wait struct {
	looked  time.Time
	longest time.Duration
}

const lookEvery = 100 * time.Millisecond

// WatchFamily calls Look for this process and its descendants repeatedly until stop is called.
func WatchFamily() (w *Waits, stop func()) {
	w = &Waits{}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for Sleep(ctx, lookEvery) {
			w.Look(Family(os.Getpid())...)
		}
	})
	return w, func() {
		cancel()
		watching.Wait()
	}
}

// Look reads the waits of all threads of the processes in pids. It notes the longest wait since the
// previous call of Look.
func (w *Waits) Look(pids ...int) {
	now := map[int]time.Duration{}
	for _, pid := range pids {
		maps.Copy(now, Waited(pid))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	found := wait{looked: time.Now()}
	for thread, waited := range now {
		if before, known := w.before[thread]; known {
			found.longest = max(found.longest, waited-before)
		}
	}
	w.before = now
	w.found = append(w.found, found)
}

// Longest returns the longest wait that a call of Look noted after the time in from.
func (w *Waits) Longest(from time.Time) (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.found {
		if f.looked.After(from) {
			longest = max(longest, f.longest)
		}
	}
	return longest
}
