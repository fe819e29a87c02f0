package proc

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

func TestFreezeResumeKill(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if err := Freeze(pid); err != nil {
		t.Fatal(err)
	}
	if s, _ := Of(pid); !s.Stopped() {
		t.Errorf("after Freeze %+v", s)
	}
	if err := Resume(pid); err != nil {
		t.Fatal(err)
	}
	if s, _ := Of(pid); s.Stopped() {
		t.Errorf("after Resume %+v", s)
	}
	if err := Kill(pid); err != nil {
		t.Fatal(err)
	}
	if s, known := Of(pid); known && !s.Ended() {
		t.Errorf("after Kill %+v, want a zombie", s)
	}
	_ = cmd.Wait() // "signal: killed"
	for name, harm := range map[string]func(int) error{"Kill": Kill, "Freeze": Freeze, "Resume": Resume} {
		if err := harm(pid); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s of a process that is gone: %v, want ESRCH", name, err)
		}
	}
}
