package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/proc"
)

const (
	// breakBudget is the time limit for breaking the lease of a killed keeper.
	breakBudget = 10 * time.Second
	// leaveBudget is the time limit within which a keeper with nothing left to do must end.
	leaveBudget = 5 * time.Second
	// The front checks for a stopped keeper every TTL/lookPart, or every lookEvery if that is shorter.
	lookPart = 10
	// stdioFrom is the lowest descriptor at which the keeper has the command's standard input, output
	// and error. Lower numbers are free for descriptors that the command inherits from the caller.
	stdioFrom = 100
)

// ignored are the signals that this process ignores, because its caller, such as nohup or a shell
// without job control, said so. They must be read before the first call of signal.Notify.
var ignored = func() (all []syscall.Signal) {
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			all = append(all, s)
		}
	}
	// Go does not tell whether SIGQUIT was ignored. Shells ignore SIGQUIT together with SIGINT.
	if slices.Contains(all, syscall.SIGINT) {
		all = append(all, syscall.SIGQUIT)
	}
	return all
}()

// handedOn are the signals that the front forwards to the command. Other signals of a terminal
// reach the command directly, through the command's process group.
var handedOn = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT,
}

type front struct {
	spec    Spec
	keeper  *proc.Child
	lines   chan line // of the keeper
	out     *Out
	plugin  plug // the keeper's plugin when the keeper got the last lease
	stopped bool // the keeper was stopped at the last check
	leads   bool // this process leads the session of a terminal
	hungUp  bool // a SIGHUP has been sent to the group, and this process will receive it, too
}

// Signals returns a channel with the signals that [Run] handles. After the call, the signals have
// no other effect on this process until signal.Stop is called.
func Signals() chan os.Signal {
	signals := make(chan os.Signal, 64)
	for _, s := range ignored {
		signal.Ignore(s) // without this call, Go ends the process at SIGQUIT
	}
	signal.Notify(signals, slices.DeleteFunc(slices.Clone(handedOn), func(s os.Signal) bool {
		return slices.Contains(ignored, s.(syscall.Signal))
	})...)
	return signals
}

// Run runs the command of the spec s until the command ends. Meanwhile Run writes messages to out,
// and handles signals from [Signals]. The caller must not start other children.
func Run(s Spec, signals <-chan os.Signal, out *Out) End {
	if err := proc.AdoptOrphans(); err != nil {
		fmt.Fprintf(out, "warning: what the command leaves behind may outlive its lock: %v\n", err)
	}
	signal.Ignore(syscall.SIGPIPE) // stderr may lose its reader; in the command the signal has its default action
	s.Group, s.Ignored, s.Run = syscall.Getpgrp(), ignored, rand.Text()
	for i := range s.Stdio {
		fd, err := unix.FcntlInt(uintptr(i), unix.F_DUPFD, stdioFrom)
		if err != nil { // the descriptor is closed, and is also closed for the command
			fd = -1
		}
		s.Stdio[i] = uintptr(fd)
	}
	f := &front{spec: s, keeper: &proc.Child{Role: role, Name: called}, out: out, leads: leadsTerminal()}
	f.lines = make(chan line, 64) // the keeper may end before Start returns
	if err := proc.Start(context.Background(), f.keeper, s, func(l line) { f.lines <- l }); err != nil {
		return End{Kind: Failed, Reason: fmt.Sprintf("the process that should keep %q: %v", s.Name, err)}
	}
	return f.serve(signals)
}

func (f *front) serve(signals <-chan os.Signal) End {
	look := time.NewTicker(min(max(f.spec.TTL/lookPart, killPause), lookEvery))
	defer look.Stop()
	for {
		select {
		case l := <-f.lines:
			if l.End != nil {
				return f.leave(*l.End)
			}
			f.take(l)
		case sig := <-signals:
			f.signal(sig.(syscall.Signal))
		case <-look.C:
			f.look()
		case <-f.keeper.Ended():
			return f.replace()
		}
	}
}

func (f *front) signal(sig syscall.Signal) {
	knows := fromTerminal(sig)
	if sig == syscall.SIGHUP && f.hungUp {
		f.hungUp = false
		return
	}
	if sig == syscall.SIGHUP && f.leads && !leadsTerminal() {
		// When the terminal hangs up, the kernel sends SIGHUP to this process, the leader. The group gets
		// SIGHUP only when this process ends, after the command. So send SIGHUP to the group now.
		f.leads, f.hungUp, knows = false, true, true
		_ = syscall.Kill(0, sig) // the group includes this process
	}
	_ = f.keeper.Send(order{sig, knows}) // Send fails when the keeper has ended
}

// leadsTerminal reports whether this process leads the session of a terminal,
// as the command of ssh -t does.
func leadsTerminal() bool {
	if sid, err := unix.Getsid(0); err != nil || sid != os.Getpid() {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	return tty.Close() == nil
}

// look kills the keeper if two checks in a row find that a signal has stopped it. A stopped keeper
// cannot renew the lease or end the command in time.
func (f *front) look() {
	s, _ := proc.Of(f.keeper.Pid())
	if f.stopped && s.Stopped() {
		_ = syscall.Kill(f.keeper.Pid(), syscall.SIGKILL) // the keeper may have ended
	}
	f.stopped = s.Stopped()
}

func (f *front) take(l line) {
	switch {
	case l.Say != "" && f.spec.Verbose, l.Warn != "":
		fmt.Fprintf(f.out, "lockbench: %s\n", l.Say+l.Warn)
	case l.Plugin.Pid != 0:
		f.plugin = l.Plugin
	case l.Stopped != 0:
		// The command was stopped, so stop this process too, unless the command runs again by now.
		if s, ok := proc.Of(l.Stopped); ok && s.Stopped() {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // a signal to this process cannot fail
		}
	}
}

// leave waits for the end of the keeper, which has nothing left to do.
func (f *front) leave(e End) End {
	ctx, cancel := context.WithTimeout(context.Background(), leaveBudget)
	defer cancel()
	_ = f.keeper.Close(ctx) // an error means that the keeper was killed
	return e
}

// replace does the work that a killed keeper has left. It ends the command, and then breaks the
// lease. If AtLeast is set, it lets the lease expire instead.
func (f *front) replace() End {
	for len(f.lines) > 0 { // the channel already holds all remaining lines of the keeper
		l := <-f.lines
		if l.End != nil {
			return *l.End
		}
		if l.Plugin.Pid != 0 {
			f.plugin = l.Plugin
		}
	}
	// The first kill spares the keeper's plugin. The plugin ends by itself, but may need half a second
	// to remove its directory from a slow disk. The deferred kill ends the plugin if it still runs.
	defer tree{func() int { return 0 }}.kill()
	tree{f.plugin.running}.kill()
	e := End{Kind: Lost, Reason: fmt.Sprintf("the process that kept %q, or waited for it, was killed, and with it the command", f.spec.Name)}
	if f.spec.AtLeast > 0 {
		return e
	}
	if err := f.free(); err != nil {
		e.Reason += fmt.Sprintf("; if it had the lock, that is free when its TTL is over: %v", err)
	}
	return e
}

func (f *front) free() error {
	ctx, cancel := context.WithTimeout(context.Background(), breakBudget)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	b, err := plugin.Open(ctx, f.spec.Backend, &plugin.Options{Path: f.spec.Path, Config: f.spec.Config, Logger: log})
	if err != nil {
		return err
	}
	c := core.New(b, &core.Options{Logger: log})
	h, err := c.Inspect(ctx, f.spec.Name)
	if err == nil && string(h.Value) == f.spec.Run { // the keeper may have died before it could tell its token
		if err = c.Break(ctx, f.spec.Name, h.Token); errors.Is(err, core.ErrNotHeld) {
			err = nil
		}
	}
	return errors.Join(err, c.Close(ctx))
}

// fromTerminal reports whether sig seems to come from the terminal. A terminal sends a signal to
// the whole foreground group, so the command gets it, too. While this process is in the foreground,
// SIGINT and SIGQUIT of other senders look the same, and are not forwarded.
func fromTerminal(sig syscall.Signal) bool {
	if sig != syscall.SIGINT && sig != syscall.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// outBudget is the time limit for Close to write the last texts.
const outBudget = time.Second

// Out writes texts for people to a writer that may block, such as a full pipe without a reader or a
// terminal that Ctrl-S has stopped. A process that must end a command or free a lock never waits
// for the writer. If 64 texts wait to be written, Out drops the next one. Any goroutine may use an
// Out.
type Out struct {
	texts chan string
	done  chan struct{}
}

// NewOut returns an Out that writes to w. The caller must close it.
func NewOut(w io.Writer) *Out {
	o := &Out{make(chan string, 64), make(chan struct{})}
	go func() {
		defer close(o.done)
		for text := range o.texts {
			_, _ = io.WriteString(w, text) // there is no other place to report an error
		}
	}()
	return o
}

// Write implements io.Writer. It neither waits nor fails.
func (o *Out) Write(text []byte) (int, error) {
	select {
	case o.texts <- string(text):
	default:
	}
	return len(text), nil
}

// Close waits until all texts are written, but at most one second. Text that the writer has not
// accepted by then is lost.
func (o *Out) Close() {
	close(o.texts)
	select {
	case <-o.done:
	case <-time.After(outBudget):
	}
}
