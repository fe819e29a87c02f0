package plugintest

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/proc"
)

const (
	// answerTime bounds the time until a server is ready.
	answerTime = 60 * time.Second
	// askEvery is the interval at which the server is asked whether it is ready.
	askEvery = 10 * time.Millisecond
)

// Server implements [drivertest.Store] for a store whose server is a process that a test starts and
// stops. Server stops, freezes and resumes the process together with its child processes. If the
// test does not start the server, leave the harness's Store field nil. Then the suite omits the
// cases that need a Store.
//
// The methods of a Server must not be called concurrently.
type Server struct {
	// Command returns a new command that starts the server in the foreground,
	// each time at the same address.
	Command func() *exec.Cmd
	// Ready returns nil if the server answers. Start calls Ready until it returns nil.
	Ready func(ctx context.Context) error
	// Wipe makes the server's data empty. Start calls Wipe while the server is stopped.
	Wipe func() error

	running *exec.Cmd     // nil while stopped
	ended   chan struct{} // closed when running has ended
}

// Port returns a free port of 127.0.0.1 for a server that the test starts.
// No other caller of Port gets that port until the test ends.
func Port(t drivertest.T) int {
	t.Helper()
	taken, err := ports.Take(1)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := taken.Close(); err != nil {
			t.Errorf("give the port back: %v", err)
		}
	})
	return taken.Port(0)
}

// Start implements drivertest.Store. In the first call, keepData must be false, so that Wipe
// creates the empty data. The caller must call Stop at the end.
func (s *Server) Start(t drivertest.T, keepData bool) {
	t.Helper()
	if s.running != nil {
		t.Fatalf("the server runs already")
	}
	if !keepData {
		if err := s.Wipe(); err != nil {
			t.Fatalf("make the server's data: %v", err)
		}
	}
	cmd, ended := s.Command(), make(chan struct{})
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the server: %v", err)
	}
	s.running, s.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // the error is not needed: ProcessState says how the server ended
		close(ended)
	}()
	if err := s.await(); err != nil {
		s.Stop(t)
		t.Fatalf("the server does not answer: %v", err)
	}
}

func (s *Server) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	for {
		err := s.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("it has ended: %v: %w", s.running.ProcessState, err)
		case <-ctx.Done():
			return err
		case <-time.After(askEvery):
		}
	}
}

// Stop implements drivertest.Store. It does nothing if the server does not run.
func (s *Server) Stop(t drivertest.T) {
	t.Helper()
	if s.running == nil {
		return
	}
	if err := proc.KillFamily(s.running.Process.Pid); err != nil {
		t.Fatalf("kill the server: %v", err)
	}
	<-s.ended
	s.running = nil
}

// Freeze implements drivertest.Store.
func (s *Server) Freeze(t drivertest.T) {
	t.Helper()
	if s.running == nil {
		t.Fatalf("SIGSTOP to a server that is stopped")
	}
	if _, err := proc.FreezeFamily(s.running.Process.Pid); err != nil {
		t.Fatalf("SIGSTOP to the server: %v", err)
	}
}

// Resume implements drivertest.Store.
func (s *Server) Resume(t drivertest.T) {
	t.Helper()
	if s.running == nil {
		t.Fatalf("SIGCONT to a server that is stopped")
	}
	if err := proc.ResumeFamily(s.running.Process.Pid); err != nil {
		t.Fatalf("SIGCONT to the server: %v", err)
	}
}
