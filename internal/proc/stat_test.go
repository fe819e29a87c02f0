package proc

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func TestProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	own, ok := Of(os.Getpid())
	if !ok || own.Ended() || own.Stopped() || own.Threads < 1 || own.Start == "" || All()[os.Getpid()].Parent != os.Getppid() {
		t.Errorf("this process is %+v, %t", own, ok)
	}
	if n, err := Resident(os.Getpid()); err != nil || n < 1<<20 || n > 1<<30 {
		t.Errorf("%d bytes of this process are resident, %v", n, err)
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	for _, step := range []struct {
		do             func(int) error
		stopped, ended bool
	}{{Resume, false, false}, {Freeze, true, false}, {Resume, false, false}, {Freeze, true, false}, {Kill, false, true}} {
		if err := step.do(pid); err != nil {
			t.Fatal(err)
		}
		if s, _ := Of(pid); s.Stopped() != step.stopped || s.Ended() != step.ended || Running(pid) == step.ended {
			t.Errorf("it is %+v, and not stopped: %t, ended: %t", s, step.stopped, step.ended)
		}
	}
	if n, err := Resident(pid); err == nil {
		t.Errorf("%d bytes of a zombie are resident", n)
	}
	_ = child.Wait() // it was killed
	if s, ok := Of(pid); ok {
		t.Errorf("after its end it is %+v", s)
	}
	for name, do := range map[string]func(int) error{"Kill": Kill, "Freeze": Freeze, "Resume": Resume} {
		if err := do(pid); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s of a process that is gone: %v, want ESRCH", name, err)
		}
	}
}

// TestParse checks that parse accepts any characters in the command's name.
func TestParse(t *testing.T) {
	s, ok := parse("7 (a) b (c) S 5 7 7 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 3 0 99 0 0")
	if want := (Stat{State: 'S', Parent: 5, Threads: 3, CPU: 420 * time.Millisecond, Start: "99"}); !ok || s != want {
		t.Errorf("got %+v, %t, want %+v", s, ok, want)
	}
	for _, damaged := range []string{"", "7 (a) S 1", "7 (a) S 1 7 7 0 -1 4194560 100 0 0 0 x 11 0 0 20 0 1 0 99"} {
		if s, ok := parse(damaged); ok {
			t.Errorf("%q is taken for %+v", damaged, s)
		}
	}
}

func TestEnded(t *testing.T) {
	if (Stat{State: 'Z', Threads: 2}).Ended() {
		t.Error("a process whose first thread has ended counts as ended")
	}
}

func TestWaited(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/proc/PID/task/TID/schedstat is Linux")
	}
	self, _ := Of(os.Getpid())
	waited := Waited(os.Getpid())
	if len(waited) == 0 || len(waited) > self.Threads+2 { // a thread may have begun since
		t.Errorf("waits of %d threads, and there are %d", len(waited), self.Threads)
	}
	for tid, d := range waited {
		if d < 0 || d > time.Hour {
			t.Errorf("thread %d has waited for %v", tid, d)
		}
	}
	if got := Waited(-1); len(got) != 0 {
		t.Errorf("a process that is not there: %v", got)
	}
}
