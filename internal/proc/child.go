// Package proc starts, observes and stops processes, for hosts, plugins and the benchmark. It
// exchanges lines of JSON with child processes, and reads the kernel's figures of a process. It
// also reads the clock that all processes of a machine share, and records the periods in which this
// process did not run.
package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// ErrEnded is the error for a child process that has ended instead of answering.
var ErrEnded = errors.New("the process has ended")

// Child is a child process. It usually runs the same program as this process. It gets orders on its
// standard input and answers on its standard output, both in lines of JSON. After [Start] has
// returned, any goroutine may call the methods.
type Child struct {
	Role    string   // the environment variable that makes the program a child; see [Become]
	Program string   // the program's path; "" for this program
	Env     []string // in addition to the environment of this process
	Name    string   // its name in the list of processes; "" for its path

	cmd   *exec.Cmd
	gone  chan struct{} // closed when the process has ended
	ended chan struct{} // closed when the process has ended and Start has passed on all its lines

	mu    sync.Mutex // serializes written lines
	stdin io.WriteCloser
}

// started is the line with which a child reports that it is ready, or the reason why it could not
// start. The child may write other lines before this line.
type started struct {
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
}

// Start starts the child c, sends spec to the child, and returns when the child is ready. The child
// passes spec to the function open of [Become]. A goroutine of Start passes the child's lines, one
// at a time, to the function take until the child ends. If Start fails, no child is left.
func Start[Line any](ctx context.Context, c *Child, spec any, take func(Line)) error {
	out, err := c.start()
	if err != nil {
		return err
	}
	begun := make(chan error, 1)
	go func() {
		defer close(c.ended)
		in := json.NewDecoder(out)
		begun <- begin(in, take)
		for {
			var l Line
			if in.Decode(&l) != nil {
				break
			}
			take(l)
		}
		out.Close()
		<-c.gone
	}()
	if err = c.Send(spec); err == nil {
		select {
		case err = <-begun:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		_ = c.Kill() // the child may have ended
	}
	return err
}

// begin passes a child's lines to the function take until the child is ready. If the child
// ends earlier, begin returns ErrEnded. If the child reports an error, begin returns it.
func begin[Line any](in *json.Decoder, take func(Line)) error {
	for {
		var text json.RawMessage
		if in.Decode(&text) != nil {
			return ErrEnded
		}
		var s started
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		switch {
		case s.Error != "":
			return errors.New(s.Error)
		case s.Ready:
			return nil
		}
		var l Line
		if err := json.Unmarshal(text, &l); err != nil {
			return err
		}
		take(l)
	}
}

func (c *Child) start() (out *os.File, err error) {
	program := c.Program
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	c.gone, c.ended = make(chan struct{}), make(chan struct{})
	c.cmd = exec.Command(program)
	if c.Name != "" {
		c.cmd.Args[0] = c.Name
	}
	c.cmd.Env = append(append(os.Environ(), c.Role+"=1"), c.Env...)
	c.cmd.Stderr = os.Stderr
	// The child's process group is separate, so that signals of the terminal do not reach it. The
	// child stays in this session, so that the kernel ends even a frozen child if this process dies.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// StdoutPipe is unsuitable, because Wait would close its pipe before all data are read.
	out, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.cmd.Stdout = w
	err = c.cmd.Start()
	w.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	go func() {
		_ = c.cmd.Wait() // ProcessState says how the process ended
		close(c.gone)
	}()
	return out, nil
}

// Send writes one line to the child. It may return nil although the child has ended.
func (c *Child) Send(line any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return json.NewEncoder(c.stdin).Encode(line)
}

func (c *Child) Pid() int { return c.cmd.Process.Pid }

func (c *Child) Alive() bool { return !Closed(c.gone) }

// Ended returns a channel that is closed when the child has ended and all its lines are handled.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Crashed reports whether the child has ended with an error status, and not by a signal.
func (c *Child) Crashed() bool { return Closed(c.ended) && c.cmd.ProcessState.ExitCode() > 0 }

// Closed reports whether a channel, on which nothing is sent, is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Freeze stops the child and returns when it has stopped.
func (c *Child) Freeze() error { return Freeze(c.Pid()) }

// Resume makes a frozen child run again (SIGCONT). The error wraps os.ErrProcessDone if the child
// has ended.
func (c *Child) Resume() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends the child with SIGKILL, even if it is frozen. It returns after the child's last line
// was passed to the function take of [Start]. It returns nil if the child had already ended.
func (c *Child) Kill() error {
	err := c.cmd.Process.Kill()
	<-c.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Close asks the child to end by closing its input, and kills the child
// if ctx ends first. It returns nil if the child had already ended.
func (c *Child) Close(ctx context.Context) error {
	c.stdin.Close() // does not lock mu, because Send may hold mu while the child is frozen
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		_ = c.Kill() // the child may have ended meanwhile
		return ctx.Err()
	}
}

// Parent is the process that started this process as a [Child].
type Parent struct {
	in *json.Decoder

	mu  sync.Mutex // guards out
	out *json.Encoder
}

// Agent runs in a child process and carries out the orders of the parent process.
type Agent[Order any] interface {
	// Do carries out one order of the parent. The next order waits until Do returns. Work that Do
	// starts may go on after Do returns, but must end when ctx ends. Close is called last.
	Do(ctx context.Context, order Order)
	// Close waits for the work that Do has started, and ends the agent.
	Close() error
}

// Become runs this process as a child and exits, if the environment variable named in role is set.
// Otherwise it does nothing. Call Become first in main or TestMain. Become passes the parent's
// first line to the function open. It tells the parent that the child is ready, or sends the error
// of open. It prints any other error to standard error, with the text in called as a prefix.
func Become[Spec, Order any](role, called string, open func(*Parent, Spec) (Agent[Order], error)) {
	if os.Getenv(role) == "" {
		return
	}
	os.Unsetenv(role) // children of this process must not take this role
	if err := serve(&Parent{in: json.NewDecoder(os.Stdin), out: json.NewEncoder(os.Stdout)}, open); err != nil {
		fmt.Fprintln(os.Stderr, called+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve[Spec, Order any](p *Parent, open func(*Parent, Spec) (Agent[Order], error)) error {
	var spec Spec
	if err := p.in.Decode(&spec); err != nil {
		return err
	}
	agent, err := open(p, spec)
	if err != nil {
		p.Send(started{Error: err.Error()})
		return nil
	}
	p.Send(started{Ready: true})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		var o Order
		if p.in.Decode(&o) != nil { // the parent has ended, or wants this process to end
			cancel()
			return agent.Close()
		}
		agent.Do(ctx, o)
	}
}

// Send writes one line to the parent. Any goroutine may call Send. Send ignores errors, because a
// parent that no longer reads has ended, and this process ends soon after its parent.
func (p *Parent) Send(line any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(line)
}
