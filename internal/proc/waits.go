package proc

import (
	"maps"
	"os"
	"sync"
	"time"
)

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

// lookEvery is how often those of a family are looked at.
const lookEvery = 100 * time.Millisecond

// WatchFamily looks at this process and all that it has started, until stop is
// called.
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

// Longest is the longest that a thread has waited from one look to the next one,
// of those after from.
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
