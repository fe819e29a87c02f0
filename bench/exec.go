package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockbench/lockbench/bench/internal/command"
	"github.com/lockbench/lockbench/internal/proc"
)

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
