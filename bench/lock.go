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

	"github.com/lockbench/lockbench/bench/internal/command"
	"github.com/lockbench/lockbench/core/driver"
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
