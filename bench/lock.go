package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/lockbench/lockbench/bench/internal/command"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
)

// These exit statuses of [Locked.Run] say what happened to the lock, not to the command.
const (
	StatusHeld = 75 // EX_TEMPFAIL: another holder has the lock
	StatusLost = 79 // the lease was lost, and the command was ended
)

// Locked is a command that runs under a lock.
type Locked struct {
	Servers
	// A TTL of 0 means the longer of 10 s and AtLeast. The Label "" means host name and process ID.
	command.Terms
	Backend string // its name, or the path of its plugin
	Command []string
	Held    int // exit status if another holder has the lock, for example StatusHeld
}

// Run runs the command while it holds the lock. The command uses the terminal, standard input,
// output and error of this process. Run returns nil if the command ended with status 0. For another
// status, it returns a [StatusError], and may write the reason to w. If w blocks, Run keeps at most
// 64 messages for w, and drops later messages. At its end, Run waits at most one second for w.
// Run handles the signals of this process.
func (l Locked) Run(ctx context.Context, w io.Writer) error {
	out := command.NewOut(w)
	defer out.Close()
	program, err := exec.LookPath(l.Command[0])
	if err != nil {
		return notFound(err, out)
	}
	for what, text := range map[string]string{"name": l.Name, "label": l.Label} {
		if !utf8.ValidString(text) {
			return usagef("the %s %q is not UTF-8", what, text)
		}
	}
	signals := command.Signals()
	defer signal.Stop(signals)
	d, err := l.found(ctx, out, signals)
	if err != nil {
		return err
	}
	for key, value := range d.config {
		if !utf8.ValidString(value) {
			return usagef("the value of %s is not UTF-8", key)
		}
	}
	if d.says.Properties.Scope == driver.ScopeHost {
		return usagef("the locks of %s live in its plugin: they keep no other process out", d.Name)
	}
	var argv [][]byte
	for _, arg := range l.Command {
		argv = append(argv, []byte(arg))
	}
	l.Label, l.TTL = cmp.Or(l.Label, hostAndPid()), cmp.Or(l.TTL, max(10*time.Second, l.AtLeast))
	e := command.Run(command.Spec{Terms: l.Terms, Backend: d.Name, Path: d.Path, Config: d.config, Program: []byte(program), Argv: argv}, signals, out)
	switch e.Kind {
	case command.Unavailable:
		return unreachable(d.Name, errors.New(e.Reason))
	case command.Invalid:
		return usagef("%s", e.Reason)
	case command.Failed:
		return errors.New(e.Reason)
	case command.Late:
		e.Status = l.Held
	case command.Held:
		e.Status = l.Held
		if !l.Tell && !l.Verbose {
			e.Reason = ""
		}
	case command.Lost:
		e.Status = StatusLost
	}
	if e.Reason != "" {
		fmt.Fprintf(out, "lockbench: %s\n", e.Reason)
	}
	return exited(e.Status)
}

// found returns the plugin with its description. If a signal arrives before the plugin has
// answered, found returns the exit status that a shell shows for this signal.
func (l Locked) found(ctx context.Context, out io.Writer, signals <-chan os.Signal) (d described, _ error) {
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a signal below cancels it
	defer cancel()
	type answer struct {
		described
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		d, err := l.resolve(asking, l.Backend, out)
		answered <- answer{d, err}
	}()
	over := ctx.Done()
	for {
		select {
		case a := <-answered:
			return a.described, a.err
		case <-over: // the signal that ended ctx also arrives on signals
			over = nil
			time.AfterFunc(time.Second, cancel)
		case sig := <-signals:
			if sig == syscall.SIGCONT {
				continue
			}
			cancel()
			select {
			case <-answered:
			case <-time.After(time.Second):
			}
			return d, StatusError(128 + int(sig.(syscall.Signal)))
		}
	}
}

func notFound(err error, out io.Writer) error {
	fmt.Fprintf(out, "lockbench: %v\n", err)
	return StatusError(command.Unstarted(err))
}

// hostAndPid returns the host name and the id of this process. The user started this process, but
// not the child process that holds the lock.
func hostAndPid() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// StatusError is the status with which this process must exit. The reason was already reported,
// usually by a program that this process ran and that ended with the same status.
type StatusError int

func (e StatusError) Error() string { return fmt.Sprintf("the program ended with status %d", int(e)) }

// Exec runs a program, and forwards signals to it. When the program has ended, Exec waits for the
// processes that the program left behind, but at most for the duration grace. The error is nil or a
// [StatusError].
func Exec(argv []string, grace time.Duration, stderr io.Writer) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return notFound(err, stderr)
	}
	if err := proc.AdoptOrphans(); err != nil {
		fmt.Fprintf(stderr, "warning: cannot wait for the plugins of a program that was killed: %v\n", err)
	}
	// Catch signals before the program starts. A program may end at once, and Exec needs its SIGCHLD.
	children, signals := make(chan os.Signal, 1), make(chan os.Signal, 16)
	signal.Notify(children, syscall.SIGCHLD)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGWINCH)
	defer signal.Stop(children)
	defer signal.Stop(signals)
	pid, err := start(path, argv)
	if err != nil {
		return notFound(fmt.Errorf("%s: %w", path, err), stderr)
	}
	var status *syscall.WaitStatus
	var timeout <-chan time.Time
	for {
		ended, left := reap(pid)
		if ended != nil && status == nil {
			status, timeout = ended, time.After(grace)
		}
		if status != nil && !left {
			return exited(command.Status(*status))
		}
		select {
		case <-children:
		case s := <-signals:
			if status == nil {
				// Kill can fail only if the program has just ended.
				_ = syscall.Kill(pid, s.(syscall.Signal))
			}
		case <-timeout:
			fmt.Fprintf(stderr, "lockbench: %s has ended, and what it left behind still runs after %v\n", argv[0], grace)
			return exited(command.Status(*status))
		}
	}
}

// start starts the program in a new process group. Otherwise Ctrl-C in a terminal would reach the
// program twice: from the terminal and from Exec.
func start(path string, argv []string) (pid int, err error) {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if _, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
		signal.Ignore(syscall.SIGTTOU, syscall.SIGTTIN)
		attr.Foreground, attr.Ctty = true, 0
	}
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: attr,
	})
}

// reap collects the status of every child that has ended. If the child with the process id in
// program has ended, reap returns its status. The result left reports whether a child still runs.
func reap(program int) (ended *syscall.WaitStatus, left bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD: no child is left
			return ended, false
		case pid == 0:
			return ended, true
		case pid == program:
			ended = &status
		}
	}
}

func exited(status int) error {
	if status == 0 {
		return nil
	}
	return StatusError(status)
}
