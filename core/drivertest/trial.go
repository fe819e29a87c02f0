package drivertest

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
)

const (
	cleanupLimit = 30 * time.Second
	// hangGrace is the longest wait for the end of a case that has exceeded its limit. The wait begins
	// when the case's context has ended.
	hangGrace = 2 * time.Second
)

// trial is the [T] of one run of a case. It runs the case in a separate
// goroutine, so that it can report a case that hangs.
type trial struct {
	ctx    context.Context
	cancel context.CancelFunc

	heartbeat heartbeat

	mu       sync.Mutex
	log      strings.Builder
	failed   bool
	open     string // the reason why the case cannot be judged, or ""
	step     string // the last operation that the case has done
	over     bool
	cleanups []func()
	dumps    []func() string // functions that return the stacks of the plugins
}

func newTrial(ctx context.Context) *trial {
	t := &trial{}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

// run calls the function f and then the clean-ups. The result undecided names the stall that may
// have spoiled the run. It is "" if there was no such stall.
func (t *trial) run(limit time.Duration, f func()) (passed bool, undecided, log string) {
	t.heartbeat = proc.StartHeartbeat(nil)
	defer t.heartbeat.Stop()
	if stacks := t.within(limit, f); stacks != "" {
		t.Errorf("the case hangs: it should have ended within %v%s\n%s", limit, t.after(), stacks)
	}
	t.cancel()
	for c := t.pop(); c != nil; c = t.pop() {
		if stacks := t.within(cleanupLimit, c); stacks != "" {
			t.Errorf("a clean-up hangs: it should have ended within %v%s\n%s", cleanupLimit, t.after(), stacks)
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	return !t.failed, t.open, t.log.String()
}

// within runs the function f in a goroutine. It returns "" if f ended in time, and otherwise the
// stacks that show where f hangs. If f hangs, its goroutine goes on, because nothing can end it.
func (t *trial) within(limit time.Duration, f func()) (stacks string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pprof.SetGoroutineLabels(pprof.WithLabels(t.ctx, pprof.Labels("case", t.label())))
		defer func() {
			if p := recover(); p != nil {
				stack := make([]byte, 16<<10)
				t.Errorf("panic: %v\n%s", p, stack[:runtime.Stack(stack, false)])
			}
		}()
		f()
	}()
	if _, ended := receive(t, done, limit); ended {
		return ""
	}
	stacks = t.stacks()
	t.cancel()
	receive(t, done, hangGrace)
	return stacks
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

// Helper does nothing, because each message shows all calls that lead to it.
func (t *trial) Helper() {}

func (t *trial) Logf(format string, args ...any) { t.write(false, format, args) }

func (t *trial) Errorf(format string, args ...any) { t.write(true, format, args) }

func (t *trial) Fatalf(format string, args ...any) {
	t.write(true, format, args)
	runtime.Goexit()
}

// The function step records an operation of the case. A failure names the last recorded operation.
func step(t T, format string, args ...any) {
	x := t.(*trial)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.step = fmt.Sprintf(format, args...)
}

func (t *trial) after() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.step == "" {
		return ""
	}
	return "; the last step was: " + t.step
}

// watch makes h record the backends that the case opens, and its actions on servers and plugins.
func (t *trial) watch(h *Harness) {
	if store := h.Store; store != nil {
		h.Store = &noted{Store: store}
	}
	if of := h.Plugin; of != nil {
		h.Plugin = func(b driver.Backend) Process { return harmed{of(b)} }
	}
	if open, stacks := h.Open, h.Stacks; stacks != nil {
		h.Open = func(on T) driver.Backend {
			b := open(on)
			t.mu.Lock()
			defer t.mu.Unlock()
			t.dumps = append(t.dumps, func() string { return stacks(b) })
			return b
		}
	}
}

// noted is a Store that records each action, so that a failure names the last action. When the case
// ends, noted starts or resumes the server, because other cases may use the same server.
type noted struct {
	Store
	stopped bool
}

func (s *noted) Stop(t T) {
	s.Store.Stop(t)
	s.stopped = true
	t.Cleanup(func() {
		if s.stopped {
			s.Start(t, true)
		}
	})
	step(t, "the server was stopped")
}

func (s *noted) Start(t T, keepData bool) {
	s.Store.Start(t, keepData)
	s.stopped = false
	step(t, "the server was started, with its data: %t", keepData)
}

func (s *noted) Freeze(t T) {
	s.Store.Freeze(t)
	t.Cleanup(func() { s.Store.Resume(t) })
	step(t, "the server was frozen")
}

func (s *noted) Resume(t T) { s.Store.Resume(t); step(t, "the server was resumed") }

type harmed struct{ Process }

func (p harmed) Kill(t T)   { p.Process.Kill(t); step(t, "the plugin was killed") }
func (p harmed) Freeze(t T) { p.Process.Freeze(t); step(t, "the plugin was frozen") }
func (p harmed) Resume(t T) { p.Process.Resume(t); step(t, "the plugin was resumed") }

// leaveOpen records that a stall may have spoiled this run, and ends the case's goroutine.
func (t *trial) leaveOpen(format string, args ...any) {
	t.mu.Lock()
	t.open = place() + fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

func (t *trial) write(failed bool, format string, args []any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return // the caller hung, so its goroutine is still running
	}
	t.failed = t.failed || failed
	fmt.Fprintf(&t.log, "%s%s\n", place(), strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}

// place returns the files and lines of all calls from the case to the one that reports a message,
// such as "queue.go:120: attempt.go:90: ". It returns "" if the suite itself reports the message.
func place() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)])
	var calls []string
	for f, more := frames.Next(); more; f, more = frames.Next() { // the last one, runtime.goexit, has no more
		file := filepath.Base(f.File)
		if !slices.Contains([]string{"run.go", "trial.go", "waitgroup.go"}, file) {
			calls = append(calls, fmt.Sprintf("%s:%d", file, f.Line))
		}
	}
	slices.Reverse(calls)
	return strings.Join(append(calls, ""), ": ")
}

func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// label returns the pprof label of the case's goroutines and of all goroutines that they start.
func (t *trial) label() string { return fmt.Sprintf("%p", t) }

// stacks returns the stacks of the case's goroutines and of the plugins that the case has
// opened. The goroutines of a backend in this process have the label of the case too.
func (t *trial) stacks() string {
	var all, plugins strings.Builder
	t.mu.Lock()
	dumps := slices.Clone(t.dumps)
	t.mu.Unlock()
	for _, dump := range dumps {
		plugins.WriteString("\n" + dump())
	}
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // a Builder returns no error
	own := slices.DeleteFunc(strings.Split(all.String(), "\n\n"), func(stack string) bool {
		return !strings.Contains(stack, t.label()) || plugins.Len() > 0 && !strings.Contains(stack, "/drivertest.")
	})
	return "it is here:\n" + strings.Join(own, "\n\n") + plugins.String()
}
