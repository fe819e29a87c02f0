package core

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// blocker has a Handle method for slog and an on method for OnEvent. Both wait for shut.
type blocker struct {
	shut    chan struct{} // closed by the test to end the blocking
	blocked chan struct{} // closed when the first goroutine blocks
	once    sync.Once

	mu     sync.Mutex
	events []Event
	lines  []slog.Record
}

func newBlocker() *blocker {
	return &blocker{shut: make(chan struct{}), blocked: make(chan struct{})}
}

func (g *blocker) pass() {
	g.once.Do(func() { close(g.blocked) })
	<-g.shut
}

func (g *blocker) on(ev Event) {
	g.pass()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, ev)
}

func (g *blocker) seen() []Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.events)
}

func (g *blocker) Enabled(context.Context, slog.Level) bool { return true }
func (g *blocker) WithAttrs([]slog.Attr) slog.Handler       { return g }
func (g *blocker) WithGroup(string) slog.Handler            { return g }
func (g *blocker) Handle(_ context.Context, r slog.Record) error {
	g.pass()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lines = append(g.lines, r)
	return nil
}

func TestL3BlockedLoggerAndOnEventHoldNothingUp(t *testing.T) {
	for name, opts := range map[string]func(g *blocker) *Options{
		"logger":  func(g *blocker) *Options { return &Options{Logger: slog.New(g)} },
		"OnEvent": func(g *blocker) *Options { return &Options{Logger: slog.New(slog.DiscardHandler), OnEvent: g.on} },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { holdsNothingUp(t, opts) }) })
	}
}

func holdsNothingUp(t *testing.T, opts func(g *blocker) *Options) {
	f, g := newFake(driver.CapWatcher), newBlocker()
	c := New(f, opts(g))
	defer c.Close(t.Context())
	defer close(g.shut)
	ttl := &LockOptions{TTL: 2 * time.Second}
	silent, fine := acquire(t, lockOf(t, c, "silent", ttl)), acquire(t, lockOf(t, c, "fine", ttl))
	<-g.blocked
	f.hook(func(_ context.Context, op string, r driver.Request) error {
		if op == "renew" && r.Name == "silent" {
			return ErrUnavailable
		}
		return nil
	}, nil)
	f.notices <- driver.Notice{Kind: driver.NoticeDown, Plugin: true, Err: errors.New("killed")}
	f.notices <- driver.Notice{Kind: driver.NoticeUp, Plugin: true}
	deadline := silent.Deadline()
	<-silent.Done()
	if late := time.Since(deadline); late > 0 {
		t.Errorf("Done closed %v after the deadline", late)
	}
	time.Sleep(time.Minute)
	if !fine.Valid() || fine.State() != Held {
		t.Errorf("the other lease is %v: %v", fine.State(), fine.Err())
	}
	if err := fine.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := acquire(t, lockOf(t, c, "fine", ttl)).Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOnEventMayCallEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		closed := make(chan error, 1)
		var c *Client
		var last atomic.Int64
		c = New(f, &Options{Logger: slog.New(slog.DiscardHandler), OnEvent: func(ev Event) {
			last.Store(int64(ev.Kind))
			if ev.Kind != EventAcquired || ev.Name != "a" {
				return
			}
			lease, err := lockOf(t, c, "b", nil).Acquire(context.Background())
			if err != nil || !lease.Valid() {
				t.Errorf("acquire in OnEvent: %v", err)
			}
			began := time.Now()
			closed <- c.Close(ev.Context)
			if took := time.Since(began); took > 0 {
				t.Errorf("Close in OnEvent took %v", took)
			}
		}})
		var lease *Lease
		_ = lockOf(t, c, "outer", nil).Do(t.Context(), func(ctx context.Context, _ *Lease) error {
			var err error
			lease, err = lockOf(t, c, "a", nil).Acquire(ctx)
			<-ctx.Done()
			return err
		})
		if err := <-closed; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !isDone(lease.Done()) || len(f.held) != 0 || EventKind(last.Load()) != EventReleased {
			t.Errorf("%d locks are held; the last event is %v", len(f.held), EventKind(last.Load()))
		}
	})
}

func TestCloseWaitsForTheLoggerForABoundedTime(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context
		most time.Duration
	}{
		"background": {context.Background(), defaultCleanupBudget},
		"ended ctx":  {ended, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newBlocker()
				c := New(newFake(), &Options{Logger: slog.New(g)})
				acquire(t, lockOf(t, c, "a", nil))
				began := time.Now()
				_ = c.Close(tc.ctx)
				if took := time.Since(began); took > tc.most || took == 0 {
					t.Errorf("Close took %v, want at most %v", took, tc.most)
				}
				close(g.shut)
				synctest.Wait()
				if n := len(g.lines); n != 3 {
					t.Errorf("%d lines after Close, want 3", n)
				}
			})
		})
	}
}

func TestOnEventThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		c := New(newFake(), &Options{OnEvent: func(Event) {
			told.Add(1)
			runtime.Goexit()
		}})
		if err := acquire(t, lockOf(t, c, "a", nil)).Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if told.Load() != 3 {
			t.Errorf("%d events, want 3", told.Load())
		}
	})
}

// panicking names an environment variable of the process that TestPanicInACallbackEndsTheProcess
// starts. The variable's value names the callback that panics.
const panicking = "LOCKBENCH_TEST_PANIC"

type panicHandler struct{ blocker }

func (*panicHandler) Handle(context.Context, slog.Record) error { panic("out of paper") }

func TestPanicInACallbackEndsTheProcess(t *testing.T) {
	if which := os.Getenv(panicking); which != "" {
		opts := &Options{OnEvent: func(Event) { panic("out of paper") }}
		if which == "logger" {
			opts = &Options{Logger: slog.New(&panicHandler{})}
		}
		c := New(newFake(), opts)
		acquire(t, lockOf(t, c, "a", nil))
		time.Sleep(time.Minute) // the process must end before that
		return
	}
	for _, which := range []string{"logger", "OnEvent"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), panicking+"="+which)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "panic: out of paper") {
			t.Errorf("%s: %v\n%s", which, err, out)
		}
	}
}

// slowLevel is a handler whose Enabled method blocks, except at the first call.
type slowLevel struct {
	*blocker
	asked atomic.Bool
}

func (h *slowLevel) Enabled(context.Context, slog.Level) bool {
	if h.asked.Swap(true) {
		<-h.shut
	}
	return true
}

func TestLoggerIsNotAskedOnTheHotPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &slowLevel{blocker: newBlocker()}
		c := New(newFake(), &Options{Logger: slog.New(h)})
		l := lockOf(t, c, "a", nil)
		lease := acquire(t, l)
		time.Sleep(time.Minute)
		if !lease.Valid() {
			t.Error(lease.Err())
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		close(h.shut)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
