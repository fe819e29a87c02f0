package core

import (
	"context"
	"errors"
	"fmt"
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

// gate is a slog handler and an OnEvent that both block while it is shut.
type gate struct {
	shut    chan struct{} // closed to open it
	blocked chan struct{} // closed when somebody waits at it
	once    sync.Once

	mu     sync.Mutex
	events []Event
	lines  []slog.Record
}

func newGate() *gate {
	return &gate{shut: make(chan struct{}), blocked: make(chan struct{})}
}

func (g *gate) pass() {
	g.once.Do(func() { close(g.blocked) })
	<-g.shut
}

func (g *gate) on(ev Event) {
	g.pass()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, ev)
}

// seen returns the events so far.
func (g *gate) seen() []Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.events)
}

func (g *gate) Enabled(context.Context, slog.Level) bool { return true }
func (g *gate) WithAttrs([]slog.Attr) slog.Handler       { return g }
func (g *gate) WithGroup(string) slog.Handler            { return g }
func (g *gate) Handle(_ context.Context, r slog.Record) error {
	g.pass()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lines = append(g.lines, r)
	return nil
}

func TestL3BlockedLoggerAndOnEventHoldNothingUp(t *testing.T) {
	for name, opts := range map[string]func(g *gate) *Options{
		"logger":  func(g *gate) *Options { return &Options{Logger: slog.New(g)} },
		"OnEvent": func(g *gate) *Options { return &Options{Logger: slog.New(slog.DiscardHandler), OnEvent: g.on} },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { holdsNothingUp(t, opts) }) })
	}
}

func holdsNothingUp(t *testing.T, opts func(g *gate) *Options) {
	f, g := newFake(driver.PowerWatcher), newGate()
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

func TestDroppedEventsAreToldAndEndsAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := New(newFake(), &Options{Logger: slog.New(g), OnEvent: g.on})
		defer c.Close(t.Context())
		var leases []*Lease
		for i := range 100 {
			leases = append(leases, acquire(t, lockOf(t, c, fmt.Sprint("early ", i), nil)))
		}
		const cycles = maxEvents
		l := lockOf(t, c, "a", nil)
		for range cycles {
			if err := acquire(t, l).Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range leases {
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		close(g.shut)
		synctest.Wait()
		acquire(t, l) // the next one that fits
		synctest.Wait()

		open := map[string]bool{}
		var told, dropped, logged uint64
		for _, ev := range g.seen() {
			told, dropped = told+1, dropped+ev.Dropped
			switch ev.Kind {
			case EventAcquired:
				open[ev.Owner] = true
			case EventReleased:
				if strings.HasPrefix(ev.Name, "early") && !open[ev.Owner] {
					t.Errorf("%q was released before it was acquired", ev.Name)
				}
				delete(open, ev.Owner)
			}
		}
		for _, r := range g.lines {
			r.Attrs(func(a slog.Attr) bool {
				if a.Key == "dropped" {
					logged += a.Value.Uint64()
				}
				return true
			})
		}
		// Opened, two for each lease, and the last acquire.
		if all := uint64(1 + 2*100 + 2*cycles + 1); dropped == 0 || told+dropped != all || logged != dropped {
			t.Errorf("%d events told, %d dropped, %d by the log; want %d in all", told, dropped, logged, all)
		}
		if len(open) != 1 {
			t.Errorf("%d leases were acquired and never ended, want the one that is held", len(open))
		}
	})
}

func TestEventsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := open(t, newFake(driver.PowerHandover))
		l := lockOf(t, c, "a", nil)
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for range 50 {
					if err := acquire(t, l).Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		synctest.Wait()
		var token uint64
		for _, ev := range rec.events {
			if ev.Kind != EventAcquired {
				continue
			}
			if ev.Token <= token {
				t.Fatalf("token %d was told after %d", ev.Token, token)
			}
			token = ev.Token
		}
	})
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
		// It waits for no callback either: this one ends with its ctx.
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
				g := newGate()
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

// panicking is set for the process that TestPanicInACallbackEndsTheProcess
// starts, and says which callback panics.
const panicking = "LOCKBENCH_TEST_PANIC"

type panicHandler struct{ gate }

func (*panicHandler) Handle(context.Context, slog.Record) error { panic("out of paper") }

func TestPanicInACallbackEndsTheProcess(t *testing.T) {
	if which := os.Getenv(panicking); which != "" {
		opts := &Options{OnEvent: func(Event) { panic("out of paper") }}
		if which == "logger" {
			opts = &Options{Logger: slog.New(&panicHandler{})}
		}
		c := New(newFake(), opts)
		acquire(t, lockOf(t, c, "a", nil))
		time.Sleep(time.Minute) // the process ends first
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

// slowLevel is a handler that blocks when it is asked for its level, but not
// the first time.
type slowLevel struct {
	*gate
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
		h := &slowLevel{gate: newGate()}
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

func TestLevelMayChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var level slog.LevelVar
		level.Set(slog.LevelWarn)
		var out strings.Builder
		c := New(newFake(), &Options{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: &level}))})
		lease := acquire(t, lockOf(t, c, "a", nil))
		level.Set(slog.LevelDebug)
		time.Sleep(2 * levelEvery)
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if !strings.Contains(out.String(), "msg=released") || strings.Contains(out.String(), "msg=acquired") {
			t.Errorf("the log is %q", out.String())
		}
	})
}

type valueKey struct{}

func TestEventsCarryTheContextOfTheirOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, rec := open(t, f)
		with := func(value string) (context.Context, context.CancelFunc) {
			return context.WithCancel(context.WithValue(t.Context(), valueKey{}, value))
		}
		l := lockOf(t, c, "a", &LockOptions{TTL: 3 * time.Second})
		ctx, cancel := with("first")
		lease, err := l.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(1500 * time.Millisecond) // a renewal
		ctx, cancel = with("try")
		if _, err := l.TryAcquire(ctx); !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
		cancel()
		ctx, cancel = with("second")
		next := make(chan *Lease)
		go func() {
			lease, err := l.Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			next <- lease
		}()
		synctest.Wait()
		released, done := with("released")
		if err := lease.Release(released); err != nil {
			t.Fatal(err)
		}
		done()
		lease = <-next
		cancel()
		f.forget("a")
		<-lease.Done()
		synctest.Wait()

		var got []string
		for _, ev := range rec.events {
			if ev.Context.Err() != nil || ev.Context.Done() != nil {
				t.Errorf("the context of %v ends", ev.Kind)
			}
			got = append(got, fmt.Sprint(ev.Kind, " ", ev.Context.Value(valueKey{})))
		}
		want := []string{
			"opened <nil>", "acquired first", "renewed first", "acquire failed try", "waiting second",
			"released released", "acquired second", "lost second",
		}
		if !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		if lease.ctx != nil {
			t.Error("a lease that has ended keeps the caller's context")
		}
	})
}
