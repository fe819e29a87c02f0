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
	_ = child.Wait() // it was killed
	if s, ok := Of(pid); ok {
		t.Errorf("after its end it is %+v", s)
	}
}

func TestEnded(t *testing.T) {
	if (Stat{State: 'Z', Threads: 2}).Ended() {
		t.Error("a process whose first thread has ended counts as ended")
	}
}
