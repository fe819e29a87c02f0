// Package env starts and controls the servers that backends are measured and
// tested against.
//
// A local server is a child process on a free loopback port with a temporary
// directory. Closing it removes both. So does the end of the process that
// owns it, whatever that end is: each server, and each project of containers,
// has a watcher, a small child that sees its pipe to the owner close. Test files
// of any package may use this package; a server that is not installed is an
// error wrapping [ErrNotInstalled].
package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/ports"
)

// startTimeout bounds how long a server may take until it answers.
const startTimeout = 60 * time.Second

// recipe says how one product is run. A new product is a new file with one.
type recipe struct {
	product string // of server, for people
	// prepare writes what the server needs into dir and returns its argv. With
	// joins it has no data, and is a new member of a cluster that runs.
	prepare func(dir string, port int, joins bool) (argv []string, err error)
	// ready returns nil when the server at addr answers requests.
	ready func(ctx context.Context, addr string) error
	// data are the files and directories with its data, below dir.
	data []string
	// keeps reports whether data survive a crash.
	keeps bool
	// ports are the server's, its own first; nil takes one. The server gives
	// them back when it is closed.
	ports *ports.Taken
}

// Server is one throwaway server. Its methods may be called from any
// goroutine; they are done one at a time.
type Server struct {
	recipe  recipe
	scratch *Scratch

	mu     sync.Mutex
	proc   *process // nil while stopped
	closed bool
}

// launchServer makes the directory, takes a port, and returns when the server
// answers.
func launchServer(ctx context.Context, r recipe) (*Server, error) {
	var err error
	if r.ports == nil {
		if r.ports, err = ports.Take(1); err != nil {
			return nil, err
		}
	}
	scratch, err := NewScratch()
	if err != nil {
		return nil, errors.Join(err, r.ports.Close())
	}
	s := &Server{recipe: r, scratch: scratch}
	if err := s.up(ctx, false); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// up starts the process and waits until it answers. The caller holds mu or is
// the only one to know s.
func (s *Server) up(ctx context.Context, joins bool) error {
	argv, err := s.recipe.prepare(s.scratch.dir, s.recipe.ports.Port(0), joins)
	if err != nil {
		return fmt.Errorf("env: prepare %s: %w", s.recipe.product, err)
	}
	p, err := start(s.scratch.dir, argv)
	if err != nil {
		return fmt.Errorf("env: start %s: %w", s.recipe.product, err)
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
		err := s.recipe.ready(ctx, s.Addr())
		if err == nil && p.alive() {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("env: %s ended at its start (%v): %s", s.recipe.product, p.err, tail(s.scratch.dir))
		case <-ctx.Done():
			return fmt.Errorf("env: %s on %s does not answer: %w: %s", s.recipe.product, s.Addr(), err, tail(s.scratch.dir))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// dial connects to a server that has a second for the question whether it is
// ready.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	deadline := time.Now().Add(time.Second)
	d := net.Dialer{Deadline: deadline}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(deadline)
}

// Addr is host:port, the same over Stop and Start.
func (s *Server) Addr() string { return s.recipe.ports.Addr(0) }

// Keeps reports whether its data survive a crash.
func (s *Server) Keeps() bool { return s.recipe.keeps }

// Pid is the process id of the running server, 0 while it is stopped.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.alive() {
		return 0
	}
	return s.proc.pid
}

// Stop ends the server as a crash would (SIGKILL), and returns when it is
// gone. Stopping a stopped server does nothing.
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

// Start starts a stopped server again at the same address, with the data it
// had or without, and returns when it answers. Keeping the data of a server
// that writes none is an error, and so is starting one that runs.
func (s *Server) Start(ctx context.Context, keepData bool) error {
	return s.again(ctx, keepData, false)
}

// Join starts a stopped server again at the same address, without data, as a
// member that the others of its cluster have added, and returns when it answers.
func (s *Server) Join(ctx context.Context) error { return s.again(ctx, false, true) }

func (s *Server) again(ctx context.Context, keepData, joins bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("env: start %s: it was closed", s.recipe.product)
	case s.proc != nil:
		return fmt.Errorf("env: start %s: it runs", s.recipe.product)
	case keepData && !s.recipe.keeps:
		return fmt.Errorf("env: start %s with its data: it was configured to write none", s.recipe.product)
	}
	if !keepData {
		for _, name := range s.recipe.data {
			if err := os.RemoveAll(filepath.Join(s.scratch.dir, name)); err != nil {
				return fmt.Errorf("env: wipe %s: %w", s.recipe.product, err)
			}
		}
	}
	return s.up(ctx, joins)
}

// Freeze stops the server's process (SIGSTOP): its connections stay open and
// nothing is answered.
func (s *Server) Freeze() error { return s.harm(inject.Freeze) }

// Resume lets a frozen server go on (SIGCONT).
func (s *Server) Resume() error { return s.harm(inject.Resume) }

func (s *Server) harm(f func(pid int) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return fmt.Errorf("env: %s is stopped", s.recipe.product)
	}
	return f(s.proc.pid)
}

// Close ends the server, frozen or not, and removes its directory. It is
// idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.down(), s.scratch.Close(), s.recipe.ports.Close())
}
