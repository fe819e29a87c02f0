package proc

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	own, ok := Of(os.Getpid())
	if !ok || own.Ended() || own.Stopped() || own.Threads < 1 || own.Start == "" {
		t.Errorf("this process is %+v, %t", own, ok)
	}
	if n, err := Resident(os.Getpid()); err != nil || n < 1<<20 || n > 1<<30 {
		t.Errorf("%d bytes of this process are resident, %v", n, err)
	}
	child := exec.Command("sh", "-c", "exec sleep 60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	becomes := func(what string, is func(Stat) bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			s, ok := Of(pid)
			if ok && is(s) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the child is not %s but %+v, %t", what, s, ok)
			}
		}
	}
	becomes("running", func(s Stat) bool { return !s.Stopped() && !s.Ended() && s.Start != "" })
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	becomes("stopped", Stat.Stopped)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	becomes("a zombie", Stat.Ended)
	if Running(pid) || !Running(os.Getpid()) {
		t.Errorf("a zombie runs: %t, this process: %t", Running(pid), Running(os.Getpid()))
	}
	if n, err := Resident(pid); err == nil {
		t.Errorf("%d bytes of a zombie are resident", n)
	}
	_ = child.Wait() // it was killed
	if s, ok := Of(pid); ok {
		t.Errorf("after its end it is %+v", s)
	}
}

// TestParse: the command in parentheses may hold anything.
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

func TestAll(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	if own, ok := All()[os.Getpid()]; !ok || own.Parent != os.Getppid() {
		t.Errorf("this process is %+v, %t, and its parent %d", own, ok, os.Getppid())
	}
}

func TestEnded(t *testing.T) {
	if (Stat{State: 'Z', Threads: 2}).Ended() {
		t.Error("a process whose first thread has ended counts as ended")
	}
}

// TestWaited: a process knows of each of its threads how long that has waited for
// a processor, and it is no more than its age.
func TestWaited(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/proc/PID/task/TID/schedstat is Linux")
	}
	self, _ := Of(os.Getpid())
	waited := Waited(os.Getpid())
	if len(waited) == 0 || len(waited) > self.Threads+2 { // one may have begun since
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
