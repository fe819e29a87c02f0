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
)

const startTimeout = 60 * time.Second

// Recipe says how to run a server of one kind.
type Recipe struct {
	Product string // name of the kind, for people
	// Prepare writes the files that the server needs into dir, and returns the server's
	// command line. If joins is true, the server has no data and is to join a running cluster.
	Prepare func(dir string, port int, joins bool) (argv []string, err error)
	// Ready returns nil if the server at addr answers requests.
	Ready func(ctx context.Context, addr string) error
	// Data are the paths of the server's data files and directories, below the server's directory.
	Data []string
	// Keeps reports whether the data survive a crash.
	Keeps bool
	// Quit is the signal by which Close asks the server to end, so that the server can clean up
	// outside its directory. Zero means that Close kills the server.
	Quit syscall.Signal
	// Ports are the server's ports. The first is for clients. If Ports is
	// nil, [Launch] takes one port. [Server.Close] gives the ports back.
	Ports *ports.Taken
}

// Server is one throwaway server. Any goroutine may call its methods. Calls wait for each other.
type Server struct {
	recipe  Recipe
	scratch *Scratch

	mu     sync.Mutex
	proc   *process // nil while stopped
	closed bool
}

// Launch starts a server, and returns when the server is ready.
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

// up starts the server's process. The caller holds mu, or no other goroutine has s yet.
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

// Answers returns a function for [Recipe].Ready that sends the text in ask to the server. The
// server is ready if it replies within a second and the function right returns true for the reply.
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

// shortest is the number of bytes that suffice to recognize a reply.
const shortest = 5

// Addr is the server's host:port. It stays the same when the server is stopped and started.
func (s *Server) Addr() string { return s.recipe.Ports.Addr(0) }

func (s *Server) Keeps() bool { return s.recipe.Keeps }

// Pid is the process id of the running server, or 0 if the server does not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.alive() {
		return 0
	}
	return s.proc.pid
}

// Stop kills the server like a crash (SIGKILL), and returns when
// its process is gone. It does nothing if the server is stopped.
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

// Start starts a stopped server again at the same address, with or without
// its data, and returns when the server is ready. It fails if the server
// runs, or if keepData is true and the server was set up to keep no data.
func (s *Server) Start(ctx context.Context, keepData bool) error {
	return s.again(ctx, keepData, false)
}

// Join starts a stopped server without its data as a new member of a running cluster, and returns
// when it is ready. The other members must have added the server's address before the call.
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

// Freeze stops all processes of the server (SIGSTOP). Connections stay open, but get no reply. The
// errors of Freeze and Resume wrap syscall.ESRCH if the server does not run.
func (s *Server) Freeze() error { return s.harm((*process).freeze) }

// Resume lets a frozen server go on (SIGCONT).
func (s *Server) Resume() error { return s.harm((*process).resume) }

func (s *Server) harm(do func(*process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.proc == nil:
		return fmt.Errorf("servers: %s is stopped: %w", s.recipe.Product, syscall.ESRCH)
	case !s.proc.alive():
		return fmt.Errorf("%w: %w", s.ended(s.proc), syscall.ESRCH)
	}
	return do(s.proc)
}

func (s *Server) ended(p *process) error {
	return fmt.Errorf("servers: %s ended by itself (%v): %s", s.recipe.Product, p.err, tail(s.scratch.dir))
}

// Close ends the server, even if it is frozen, and removes its
// directory. It may be called more than once, and on nil.
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

type Nodes []*Server

// Addr returns the addresses, joined by commas.
func (n Nodes) Addr() string { return strings.Join(n.Addrs(), ",") }

func (n Nodes) Addrs() []string {
	addrs := make([]string, len(n))
	for i, s := range n {
		addrs[i] = s.Addr()
	}
	return addrs
}

// StartNodes starts count servers at the same time. It calls the function start with each number
// from 0 to count-1. If one call fails, it closes the servers of the other calls.
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

// AtOnce calls the function do for all servers at the same time. Members of a cluster must start at
// the same time, because each member waits for the other members.
func (n Nodes) AtOnce(do func(*Server) error) error {
	return inject.AtOnce(len(n), func(i int) error { return do(n[i]) })
}

func (n Nodes) Start(ctx context.Context, keepData bool) error {
	return n.AtOnce(func(s *Server) error { return s.Start(ctx, keepData) })
}

func (n Nodes) EachRunning(do func(*Server) error) error {
	return inject.Each(n, func(s *Server) error {
		if s.Pid() == 0 {
			return nil
		}
		if err := do(s); !errors.Is(err, syscall.ESRCH) { // the server may have been stopped meanwhile
			return err
		}
		return nil
	})
}

func (n Nodes) Close() error { return n.AtOnce((*Server).Close) }

// Retry calls the function do until it succeeds, but for no longer than startTimeout.
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
