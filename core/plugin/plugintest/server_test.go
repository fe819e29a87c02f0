package plugintest

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// TestServerHarmsItsChildrenToo checks that a server's child processes are
// frozen and killed with the server, even if they are in other sessions.
func TestServerHarmsItsChildrenToo(t *testing.T) {
	var family []int
	wiped := 0
	s := &Server{
		Command: func() *exec.Cmd { return exec.Command("sh", "-c", "setsid sleep 600 & sleep 600; :") },
		Wipe:    func() error { wiped++; return nil },
	}
	s.Ready = func(context.Context) error {
		if family = proc.Family(s.running.Process.Pid); len(family) < 3 {
			return errors.New("its children have not started")
		}
		return nil
	}
	stopped := func(pid int) bool { p, _ := proc.Of(pid); return p.Stopped() }
	for range 2 {
		s.Start(t, false)
		s.Freeze(t)
		for _, pid := range family {
			if !stopped(pid) {
				t.Errorf("process %d of %v runs on", pid, family)
			}
		}
		s.Resume(t)
		for end := time.Now().Add(10 * time.Second); slices.ContainsFunc(family, stopped); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("of %v some do not go on", family)
			}
		}
		s.Stop(t)
		if slices.ContainsFunc(family, Running) {
			t.Errorf("of %v some have outlived it", family)
		}
	}
	if wiped != 2 {
		t.Errorf("its data were made new %d times", wiped)
	}
}
