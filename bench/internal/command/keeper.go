package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/tick"
	"github.com/lockbench/lockbench/internal/proc"
)

const (
	startTimeout = 30 * time.Second
	// closeBudget limits the time for releasing the lock, which is the last thing that a keeper does.
	// If the keeper got no lock, or has lost the lease, leaveWithin is the limit instead.
	closeBudget, leaveWithin = 10 * time.Second, 2 * time.Second
	// betweenTerms is the pause before a leader campaigns again after its command has ended.
	betweenTerms = time.Second
)

// Main runs the keeper and exits, if this process was started as a keeper. Call Main first in main.
func Main() { proc.Become(role, called, openKeeper) }

// keeper is the process that holds the lease. The command is its child.
type keeper struct {
	spec    Spec
	said    chan line
	changes chan os.Signal // gets SIGCHLD whenever a child ends or stops
	backend driver.Backend
	client  *core.Client

	fronted context.Context // ends when the front ends
	orphan  context.CancelFunc
	wanted  context.Context // ends when the lock is no longer wanted; its cause says why
	refuse  context.CancelCauseFunc
	ended   chan struct{}
	at      time.Time // the tick for which the command runs; zero for none

	resumed atomic.Int64 // when the keeper resumed the front, in ns since 1970; 0 after the front has passed on that SIGCONT

	mu    sync.Mutex
	pid   int  // process id of the command; 0 when no command can be signalled
	leave bool // a signal has told the keeper to end after this term
}

// interrupt is the signal that has ended a wait for the lock.
type interrupt syscall.Signal

func (i interrupt) Error() string { return syscall.Signal(i).String() }

func openKeeper(p *proc.Parent, s Spec) (proc.Agent[order], error) {
	k := &keeper{spec: s, said: make(chan line, 256), changes: make(chan os.Signal, 1), ended: make(chan struct{})}
	// Ignore both errors. The front has reported the error of AdoptOrphans, and Rename is not vital.
	_, _ = proc.Rename(called), proc.AdoptOrphans()
	for _, fd := range s.Stdio {
		syscall.CloseOnExec(int(fd))
	}
	// A service manager may send all processes a signal that is meant for the command. The keeper
	// drops such signals, because it must end after the command. Its children get the default action
	// for these signals, or ignore those that the caller ignores.
	drop := make(chan os.Signal, 1)
	signal.Notify(drop, append([]os.Signal{syscall.SIGPIPE, syscall.SIGTTOU, syscall.SIGTTIN, syscall.SIGTSTP}, handedOn...)...)
	for _, sig := range s.Ignored {
		signal.Ignore(sig)
	}
	signal.Notify(k.changes, syscall.SIGCHLD) // before the command starts, so as not to miss its end
	k.fronted, k.orphan = context.WithCancel(context.Background())
	k.wanted, k.refuse = context.WithCancelCause(k.fronted)
	told := make(chan struct{})
	go func() {
		defer close(told)
		for l := range k.said {
			p.Send(l) // Send waits while the front is stopped
		}
	}()
	go func() {
		defer close(k.ended)
		// Stay on this thread: when it ends, the kernel kills the command that it has started.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		e := k.run()
		k.said <- line{End: &e}
		close(k.said)
		<-told
	}()
	return k, nil
}

// say sends a line to the front. If the channel is full (the front is stopped), it drops the line.
func (k *keeper) say(l line) {
	select {
	case k.said <- l:
	default:
	}
}

// Do implements proc.Agent. It forwards the signal to the command, or ends the wait for the lock.
func (k *keeper) Do(_ context.Context, o order) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ends := slices.Contains([]syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}, o.Signal)
	k.leave = k.leave || ends
	switch {
	case k.pid == 0 && ends:
		k.refuse(interrupt(o.Signal))
	case o.Signal == syscall.SIGCONT && time.Now().UnixNano()-k.resumed.Swap(0) < int64(time.Second):
		// Drop the SIGCONT with which the keeper resumed the front, because the command runs already.
	case k.pid != 0 && !o.Knows:
		_ = syscall.Kill(k.pid, o.Signal) // the pid is still valid, because the process was not reaped yet; signals to another user's process fail
	}
}

// leaves reports whether the keeper ends after this term instead of campaigning again.
func (k *keeper) leaves() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leave || k.wanted.Err() != nil
}

// Close implements proc.Agent. It is called when the front is dead or has received the last line.
func (k *keeper) Close() error {
	k.orphan()
	<-k.ended
	return nil
}

// run does the whole work of the keeper. When it returns, the command and the plugin have ended.
func (k *keeper) run() (e End) {
	log := slog.New(slog.DiscardHandler)
	b, err := plugin.Open(k.wanted, k.spec.Backend, &plugin.Options{
		Path: k.spec.Path, Config: k.spec.Config, Logger: log, StartTimeout: startTimeout,
		OnHostDeath: plugin.Policy{Abandon: true}, // if the keeper dies, the front breaks the lease
	})
	if err != nil {
		return k.failed(err)
	}
	ran := false
	k.backend, k.client = b, core.New(b, &core.Options{Label: k.spec.Label, Logger: log, OnEvent: k.tell})
	defer func() {
		budget := leaveWithin
		if ran && e.Kind == Ended {
			budget = closeBudget
		}
		ctx, cancel := context.WithTimeout(context.Background(), budget)
		defer cancel()
		if err := k.client.Close(ctx); err != nil && budget == closeBudget {
			k.say(line{Warn: fmt.Sprintf("the lock may still be taken: %v", err)})
		}
	}()
	for {
		h, err := k.acquire()
		if err != nil {
			return k.failed(err)
		}
		k.say(line{Plugin: k.plug()})
		ran, e = true, k.hold(h)
		again := k.spec.Lead && (e.Kind == Lost || e.Kind == Ended && k.spec.Restart)
		if !again || k.leaves() {
			return e
		}
		if e.Reason != "" {
			k.say(line{Warn: e.Reason})
		} else if e.Status != 0 {
			k.say(line{Warn: fmt.Sprintf("%s ended with status %d; it starts again with the next term", k.spec.Argv[0], e.Status)})
		}
		if !proc.Sleep(k.wanted, betweenTerms) {
			return k.failed(k.wanted.Err())
		}
	}
}

func (k *keeper) plug() plug {
	pid, _ := plugin.ProcessOf(k.backend)
	s, _ := proc.Of(pid) // the plugin may have ended; pid 0 then stands for no plugin
	return plug{pid, s.Start}
}

// failed returns the End for an error that occurred while no command ran.
func (k *keeper) failed(err error) End {
	kind := Failed
	var sig interrupt
	var open *plugin.OpenError
	switch {
	case errors.As(context.Cause(k.wanted), &sig):
		return End{Status: 128 + int(sig)}
	case errors.Is(err, core.ErrInvalid), errors.Is(err, core.ErrConfig):
		kind = Invalid
	case errors.Is(err, tick.ErrLate):
		kind = Late
	case errors.Is(err, core.ErrHeld):
		kind = Held
		var held *core.HeldError
		if errors.Is(err, context.DeadlineExceeded) && errors.As(err, &held) {
			err = fmt.Errorf("not granted within %v: %w", k.spec.Wait, held)
		}
	case errors.Is(err, core.ErrUnavailable), errors.Is(err, core.ErrDenied):
		kind = Unavailable
	case errors.Is(err, context.DeadlineExceeded):
		kind = Held
	case errors.As(err, &open):
		kind = Unavailable
	}
	return End{Kind: kind, Reason: err.Error()}
}

func (k *keeper) tell(ev core.Event) {
	name := strconv.Quote(ev.Name)
	switch ev.Kind {
	case core.EventAcquired:
		k.say(line{Say: fmt.Sprintf("acquired %s under token %d after %v", name, ev.Token, ev.Took.Round(time.Millisecond))})
	case core.EventWaiting, core.EventWaitFailed:
		said := line{Warn: fmt.Sprintf("waiting: %v", ev.Err)}
		if errors.Is(ev.Err, core.ErrHeld) && !k.spec.Tell {
			said = line{Say: said.Warn}
		}
		k.say(said)
	case core.EventRenewed:
		text := "renewed " + name
		if ev.Slack > 0 {
			text += fmt.Sprintf(", with %v left", ev.Slack.Round(time.Millisecond))
		}
		k.say(line{Say: text})
	case core.EventSuspect:
		k.say(line{Say: fmt.Sprintf("not renewed: %v", ev.Err)})
	case core.EventReleased:
		text := "released " + name
		if ev.Err != nil {
			text = fmt.Sprintf("the release of %s is not confirmed: %v", name, ev.Err)
		}
		k.say(line{Say: text})
	}
}

// held is what a lease (of a lock) and a term (of a leader) have in common.
type held interface {
	Token() uint64
	Deadline() time.Time
	Done() <-chan struct{}
	Err() error
	Release(context.Context) error
}

type led struct{ *core.Term }

func (l led) Done() <-chan struct{}             { return l.Context().Done() }
func (l led) Release(ctx context.Context) error { return l.Resign(ctx) }

// acquire waits for the lock or the leadership, at most for the time that the Spec allows.
func (k *keeper) acquire() (held, error) {
	ctx := k.wanted
	if k.spec.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.spec.Wait)
		defer cancel()
	}
	if k.spec.Lead {
		e, err := k.client.Elector(k.spec.Name, &core.ElectorOptions{TTL: k.spec.TTL, Value: []byte(k.spec.Run)})
		if err != nil {
			return nil, err
		}
		term, err := e.Campaign(ctx)
		if err != nil {
			return nil, err
		}
		return led{term}, nil
	}
	if k.spec.Tick > 0 {
		job, err := tick.New(k.client, k.spec.Name, tick.Every(k.spec.Tick), &tick.Options{
			Lock: core.LockOptions{TTL: k.spec.TTL, Value: []byte(k.spec.Run)}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, err
		}
		t, err := job.Take(ctx)
		if err != nil {
			return nil, err
		}
		k.at = t.At
		return t.Lease, nil
	}
	// With any AtLeast, even 1 ns, core first renews a lease that was granted to a waiter, and then
	// returns it. The command needs this, because the grant is too short to end a command in time.
	l, err := k.client.Lock(k.spec.Name, &core.LockOptions{TTL: k.spec.TTL, AtLeast: max(k.spec.AtLeast, 1), Value: []byte(k.spec.Run)})
	if err != nil {
		return nil, err
	}
	acquire := l.Acquire
	if k.spec.Try {
		acquire = l.TryAcquire
	}
	lease, err := acquire(ctx)
	if err != nil {
		return nil, err // an untyped nil, because a nil pointer in an interface is not nil
	}
	return lease, nil
}
