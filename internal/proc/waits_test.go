package proc

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestWaits: of more threads than processors some wait.
func TestWaits(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/proc/PID/task/TID/schedstat is Linux")
	}
	threads := 3 * runtime.NumCPU()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	var over atomic.Bool
	defer over.Store(true)
	for range threads - 1 {
		go func() {
			for !over.Load() {
			}
		}()
	}
	var w Waits
	for end := time.Now().Add(10 * time.Second); w.Longest(time.Time{}) == 0; time.Sleep(10 * time.Millisecond) {
		if w.Look(os.Getpid()); time.Now().After(end) {
			t.Fatalf("none of %d threads has waited for one of %d processors", threads, runtime.NumCPU())
		}
	}
	if later := w.Longest(time.Now()); later != 0 {
		t.Errorf("it will have waited for %v", later)
	}
	w.Look()
	w.Look(os.Getpid()) // each thread is new to it
	if n := len(w.found); w.found[n-1].longest != 0 {
		t.Errorf("before it was looked at a thread has waited for %v", w.found[n-1].longest)
	}
}
