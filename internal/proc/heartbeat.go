package proc

import (
	"maps"
	"os"
	"sync"
	"time"
)

const (
	// beatEvery is how often a heartbeat looks whether the process runs.
	beatEvery = 5 * time.Millisecond
	// stallAfter is the silence from which on the process counts as stalled.
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

// StartHeartbeat starts a heartbeat. It calls each, which may be nil, at every
// beat, with the time before it in which the process stalled, nil for none.
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

// note is a beat at now. It returns how long the process has stalled before
// it, nil for not at all.
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

// Stalled is how long the process stalled between the two instants.
func (h *Heartbeat) Stalled(from, to time.Time) (sum time.Duration) {
	h.note(time.Now()) // the goroutine that asks may be back before the ticker's
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

// Stop ends the heartbeat and returns all stalls. It may be called again.
func (h *Heartbeat) Stop() []Stall {
	h.once.Do(func() { close(h.stop) })
	h.ended.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stalls
}

// Ran returns how long this process ran during do. On a busy machine a stopwatch
// would also count the time in which the process did not run.
func Ran(do func()) time.Duration {
	h := StartHeartbeat(nil)
	defer h.Stop()
	from := time.Now()
	do()
	to := time.Now()
	return to.Sub(from) - h.Stalled(from, to)
}

// Waits notes how long threads of processes wait for a processor. A heartbeat
// sleeps most of the time, so that the kernel lets it run at once; a process that
// has work to do waits among those who have some, too. Its methods may be called
// from any goroutine.
type Waits struct {
	mu     sync.Mutex
	before map[int]time.Duration // by thread, at the last look
	found  []wait
}

// wait is the longest that a thread has waited from one look to the next.
type wait struct {
	looked  time.Time
	longest time.Duration
}

// lookEvery is how often the threads of a family are looked at.
const lookEvery = 100 * time.Millisecond

// WatchFamily looks at this process and all its descendants, until stop is called.
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

// Look looks at the threads of processes pids.
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

// Longest is the longest wait of a thread from one look to the next, among looks
// after from.
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
