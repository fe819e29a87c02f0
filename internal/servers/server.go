package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/proc"
)

// startTimeout bounds how long a server may take until it answers.
const startTimeout = 60 * time.Second

// Recipe says how to run a server of one product.
type Recipe struct {
	Product string // name of the product, for people
	// Prepare writes the files that the server needs into dir and returns the server's argv.
	// If joins is set, the server has no data, and is a new member of a running cluster.
	Prepare func(dir string, port int, joins bool) (argv []string, err error)
	// Ready returns nil when the server at addr answers requests.
	Ready func(ctx context.Context, addr string) error
	// Data are the server's data files and directories, below dir.
	Data []string
	// Keeps reports whether the data survive a crash.
	Keeps bool
	// Quit, if not zero, is the signal by which Close asks the server to end, so
	// that it can remove what it has outside its directory.
	Quit syscall.Signal
	// Ports are the server's ports, its main port first. If nil, [Launch] takes
	// one port. The server gives its ports back when it is closed.
	Ports *ports.Taken
}

// Server is one throwaway server. Its methods may be called from any goroutine;
// they run one at a time.
type Server struct {
	recipe  Recipe
	scratch *Scratch

	mu     sync.Mutex
	proc   *process // nil while stopped
	closed bool
}

// Launch makes the server's directory, takes a port, starts the server, and
// returns when it answers.
func Launch(ctx context.Context, r Recipe) (*Server, error) {
	var err error
	if r.Ports == nil {
		if r.Ports, err = ports.Take(1); err != nil {
			return nil, err
		}
	}
	scratch, err := NewScratch()
	if err != nil {
		return nil, errors.Join(err, r.Ports.Close())
	}
	s := &Server{recipe: r, scratch: scratch}
	if err := s.up(ctx, false); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// up starts the process and waits until it answers. The caller holds mu, or no
// other goroutine knows s yet.
func (s *Server) up(ctx context.Context, joins bool) error {
	argv, err := s.recipe.Prepare(s.scratch.dir, s.recipe.Ports.Port(0), joins)
	if err != nil {
		return fmt.Errorf("servers: prepare %s: %w", s.recipe.Product, err)
	}
	p, err := start(s.scratch.dir, argv)
	if err != nil {
		return fmt.Errorf("servers: start %s: %w", s.recipe.Product, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.await(ctx, p); err != nil {
		return errors.Join(err, p.kill())
	}
	s.proc = p
	return nil
}

func (s *Server) await(ctx context.Context, p *process) error {
	for {
		err := s.recipe.Ready(ctx, s.Addr())
		if err == nil && p.alive() {
			return nil
		}
		select {
		case <-p.ended:
			return s.ended(p)
		case <-ctx.Done():
			return fmt.Errorf("servers: %s on %s does not answer: %w: %s", s.recipe.Product, s.Addr(), err, tail(s.scratch.dir))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Answers returns a function for [Recipe].Ready. It sends the text ask to the server, which
// is ready if it replies within a second and the function right accepts the reply.
func Answers(ask string, right func(reply string) bool) func(ctx context.Context, addr string) error {
	return func(ctx context.Context, addr string) error {
		deadline := time.Now().Add(time.Second)
		c, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		err = c.SetDeadline(deadline)
		if err == nil {
			_, err = io.WriteString(c, ask)
		}
		if err != nil {
			return err
		}
		reply := make([]byte, 128)
		n, err := io.ReadAtLeast(c, reply, shortest)
		if err == nil && !right(string(reply[:n])) {
			err = fmt.Errorf("it says %q", reply[:n])
		}
		return err
	}
}

// shortest is how many bytes of a reply are enough to recognize it.
const shortest = 5

// Addr is host:port. It stays the same over Stop and Start.
func (s *Server) Addr() string { return s.recipe.Ports.Addr(0) }

// Keeps reports whether the server's data survive a crash.
func (s *Server) Keeps() bool { return s.recipe.Keeps }

// Pid is the process id of the running server, 0 while it is stopped.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.alive() {
		return 0
	}
	return s.proc.pid
}

// Stop ends the server as a crash would (SIGKILL), and returns when its process
// is gone. Stopping a stopped server does nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down()
}

func (s *Server) down() error {
	if s.proc == nil {
		return nil
	}
	if err := s.proc.kill(); err != nil {
		return err
	}
	s.proc = nil
	return nil
}

// Start starts a stopped server again at the same address, with or without its
// data, and returns when it answers. It is an error to keep the data of a
// server that writes none, or to start a running server.
func (s *Server) Start(ctx context.Context, keepData bool) error {
	return s.again(ctx, keepData, false)
}

// Join starts a stopped server again at the same address, without data, as a member
// that the other members of its cluster have added, and returns when it answers.
func (s *Server) Join(ctx context.Context) error { return s.again(ctx, false, true) }

func (s *Server) again(ctx context.Context, keepData, joins bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("servers: start %s: it was closed", s.recipe.Product)
	case s.proc != nil:
		return fmt.Errorf("servers: start %s: it runs", s.recipe.Product)
	case keepData && !s.recipe.Keeps:
		return fmt.Errorf("servers: start %s with its data: it was configured to write none", s.recipe.Product)
	}
	if !keepData {
		for _, name := range s.recipe.Data {
			if err := os.RemoveAll(filepath.Join(s.scratch.dir, name)); err != nil {
				return fmt.Errorf("servers: wipe %s: %w", s.recipe.Product, err)
			}
		}
	}
	return s.up(ctx, joins)
}

// Freeze stops the server's processes (SIGSTOP). Its connections stay open, and
// it answers nothing.
func (s *Server) Freeze() error {
	return s.harm(func(pid int) error { _, err := proc.FreezeFamily(pid); return err })
}

// Resume lets a frozen server go on (SIGCONT).
func (s *Server) Resume() error { return s.harm(proc.ResumeFamily) }

func (s *Server) harm(f func(pid int) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.proc == nil:
		return fmt.Errorf("servers: %s is stopped", s.recipe.Product)
	case !s.proc.alive():
		return s.ended(s.proc)
	}
	return f(s.proc.pid)
}

func (s *Server) ended(p *process) error {
	return fmt.Errorf("servers: %s ended by itself (%v): %s", s.recipe.Product, p.err, tail(s.scratch.dir))
}

// Close ends the server, frozen or not, and removes its directory. It is
// idempotent, and s may be nil.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.proc != nil && s.recipe.Quit != 0 {
		s.proc.quit(s.recipe.Quit)
	}
	return errors.Join(s.down(), s.scratch.Close(), s.recipe.Ports.Close())
}

// Nodes are several servers.
type Nodes []*Server

// Addr returns the addresses, joined by commas.
func (n Nodes) Addr() string { return strings.Join(n.Addrs(), ",") }

// Addrs returns the addresses.
func (n Nodes) Addrs() []string {
	addrs := make([]string, len(n))
	for i, s := range n {
		addrs[i] = s.Addr()
	}
	return addrs
}

// StartNodes starts count servers at the same time, by calls of the function start.
// If a server fails, the other servers are closed.
func StartNodes(count int, start func(i int) (*Server, error)) (Nodes, error) {
	nodes := make(Nodes, count)
	err := inject.AtOnce(count, func(i int) (err error) {
		nodes[i], err = start(i)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, nodes.Close())
	}
	return nodes, nil
}

// AtOnce calls the function do for all servers at the same time, because the members
// of a cluster can only start together.
func (n Nodes) AtOnce(do func(*Server) error) error {
	return inject.AtOnce(len(n), func(i int) error { return do(n[i]) })
}

// Start starts all servers.
func (n Nodes) Start(ctx context.Context, keepData bool) error {
	return n.AtOnce(func(s *Server) error { return s.Start(ctx, keepData) })
}

// EachRunning calls the function do for each server that is not stopped, one server
// after the other.
func (n Nodes) EachRunning(do func(*Server) error) error {
	return inject.Each(n, func(s *Server) error {
		if s.Pid() == 0 {
			return nil
		}
		return do(s)
	})
}

// Close closes all servers.
func (n Nodes) Close() error { return n.AtOnce((*Server).Close) }

// Retry calls the function do until it succeeds, but not longer than a server may take to start.
func Retry(ctx context.Context, what string, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("servers: %s: %w: %w", what, ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
