package fault

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
	if got := state(pid); got != "T" {
		t.Errorf("state after Freeze = %q, want T", got)
	}
	if err := Resume(pid); err != nil {
		t.Fatal(err)
	}
	if got := state(pid); got == "T" {
		t.Error("still stopped after Resume")
	}
	if err := Kill(pid); err != nil {
		t.Fatal(err)
	}
	if got := state(pid); got != "Z" && got != "" {
		t.Errorf("state after Kill = %q, want a zombie", got)
	}
	_ = cmd.Wait() // "signal: killed"
	for name, harm := range map[string]func(int) error{"Kill": Kill, "Freeze": Freeze, "Resume": Resume} {
		if err := harm(pid); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s of a process that is gone: %v, want ESRCH", name, err)
		}
	}
}
