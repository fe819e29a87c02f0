package proc

import (
	"maps"
	"os"
	"sync"
	"time"
)

const (
	// beatEvery is the time between two beats.
	beatEvery = 5 * time.Millisecond
	// stallAfter is the longest time between two beats that does not count as a stall.
	stallAfter = 15 * time.Millisecond
)

// Stall is a period in which this process did not run, for whatever reason.
type Stall struct{ From, To time.Time }

// Heartbeat notes when this process did not run.
type Heartbeat struct {
	stop  chan struct{}
	once  sync.Once
	ended sync.WaitGroup

	mu     sync.Mutex
	last   time.Time
	stalls []Stall
}

// StartHeartbeat starts a heartbeat. At every beat it calls the function each, which may be nil.
// The argument is the stall that ended with this beat, or nil if the process did not stall.
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

// note records a beat at the time now. It returns the stall that ended with this
// beat, or nil if the process did not stall.
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

// Stalled returns how long the process stalled between two instants.
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

// Ran calls the function do and returns how long this process ran meanwhile. On a busy machine
// a stopwatch would also count the time in which the process did not run.
func Ran(do func()) time.Duration {
	h := StartHeartbeat(nil)
	defer h.Stop()
	from := time.Now()
	do()
	to := time.Now()
	return to.Sub(from) - h.Stalled(from, to)
}

// Waits notes how long threads of processes wait for a processor. A heartbeat does not
// show these waits, because its thread sleeps most of the time, and the kernel runs such
// a thread at once. Busy threads wait for each other. The methods of Waits may be called
// from any goroutine.
type Waits struct {
	mu     sync.Mutex
	before map[int]time.Duration // total wait of each thread at the last look
	found  []wait
}

// wait is the longest wait of any thread between one look and the look before it.
type wait struct {
	looked  time.Time
	longest time.Duration
}

// lookEvery is the time between two looks at the threads of a process and its descendants.
const lookEvery = 100 * time.Millisecond

// WatchFamily notes the waits of this process and all its descendants, until stop is called.
func WatchFamily() (w *Waits, stop func()) {
	w = &Waits{}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-time.After(lookEvery):
				w.Look(Family(os.Getpid())...)
			case <-over:
				return
			}
		}
	}()
	return w, sync.OnceFunc(func() {
		close(over)
		<-ended
	})
}

// Look notes the longest wait of any thread of the processes in pids since the last look.
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

// Longest returns the longest wait of one thread between two looks. It considers
// only looks after the time from.
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
