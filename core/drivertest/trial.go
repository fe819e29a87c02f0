package drivertest

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

const (
	// cleanupLimit bounds the clean-ups of one case.
	cleanupLimit = 30 * time.Second
	// hangGrace is what a case that is over time gets to end by itself once
	// its context has ended.
	hangGrace = 2 * time.Second
)

// trial is the [T] that cases run with. It runs the case in a goroutine of its
// own, so that a case that hangs is reported instead of hanging the caller.
type trial struct {
	ctx    context.Context
	cancel context.CancelFunc

	heartbeat heartbeat

	mu       sync.Mutex
	log      strings.Builder
	failed   bool
	open     string // why the case could not be judged, "" when it was
	over     bool
	cleanups []func()
	helpers  map[string]bool
}

func newTrial(ctx context.Context) *trial {
	t := &trial{helpers: map[string]bool{}}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

// run calls f and then the clean-ups. It reports whether the case has passed, or
// why it could not be judged, and returns what it wrote.
func (t *trial) run(limit time.Duration, f func()) (passed bool, undecided, log string) {
	t.heartbeat = proc.StartHeartbeat(nil)
	defer t.heartbeat.Stop()
	if !t.within(limit, f) {
		t.Errorf("the case hangs: it should have ended within %v\n%s", limit, goroutines())
	}
	t.cancel()
	for c := t.pop(); c != nil; c = t.pop() {
		if !t.within(cleanupLimit, c) {
			t.Errorf("a clean-up hangs: it should have ended within %v\n%s", cleanupLimit, goroutines())
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	return !t.failed, t.open, t.log.String()
}

// within runs f in a goroutine and reports whether it ended in time. One that
// hangs is left behind: nothing can end it.
func (t *trial) within(limit time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				stack := make([]byte, 16<<10)
				t.Errorf("panic: %v\n%s", p, stack[:runtime.Stack(stack, false)])
			}
		}()
		f()
	}()
	if _, ended := receive(t, done, limit); ended {
		return true
	}
	t.cancel()
	receive(t, done, hangGrace)
	return false
}

func (t *trial) pop() func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.cleanups) - 1
	if last < 0 {
		return nil
	}
	f := t.cleanups[last]
	t.cleanups = t.cleanups[:last]
	return f
}

func (t *trial) Context() context.Context { return t.ctx }

func (t *trial) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *trial) Helper() {
	pc, _, _, ok := runtime.Caller(1)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.helpers[runtime.FuncForPC(pc).Name()] = true
}

func (t *trial) Logf(format string, args ...any) { t.write(false, format, args) }

func (t *trial) Errorf(format string, args ...any) { t.write(true, format, args) }

func (t *trial) Fatalf(format string, args ...any) {
	t.write(true, format, args)
	runtime.Goexit()
}

// leaveOpen ends the case's goroutine without a judgement.
func (t *trial) leaveOpen(format string, args ...any) {
	t.mu.Lock()
	t.open = t.caller() + ": " + fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

func (t *trial) write(failed bool, format string, args []any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return // from a goroutine that was left behind
	}
	t.failed = t.failed || failed
	fmt.Fprintf(&t.log, "%s: %s\n", t.caller(), strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}

// caller is the place from which a case called, past this file and helpers.
func (t *trial) caller() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)])
	for {
		f, more := frames.Next()
		if !t.helpers[f.Function] || !more {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
	}
}

// Failed reports whether the case has failed so far.
func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// goroutines is a dump of all goroutines, to show where something hangs.
func goroutines() string {
	buf := make([]byte, 256<<10)
	return string(buf[:runtime.Stack(buf, true)])
}
