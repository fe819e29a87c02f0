package servers

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// timeout bounds what a test waits for on a machine that is busy.
const timeout = 30 * time.Second

// TestNothingLeft kills the owner of a server, with the server running and
// with the server frozen, and looks for what remains.
func TestNothingLeft(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		t.Run(fmt.Sprintf("frozen=%v", frozen), func(t *testing.T) {
			owner, pid, watcherPid, dir := startOwner(t)
			if frozen {
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			if err := owner.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = owner.Wait() // "signal: killed"
			eventually(t, "the server is gone", func() bool { return !proc.Running(pid) })
			eventually(t, "the watcher is gone", func() bool { return !proc.Running(watcherPid) })
			left, err := filepath.Glob(dir + "*")
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

func startOwner(t *testing.T) (owner *exec.Cmd, pid, watcherPid int, dir string) {
	t.Helper()
	owner = exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &pid, &watcherPid, &dir); err != nil {
		t.Fatal(line, err)
	}
	return owner, pid, watcherPid, dir
}

func TestSweep(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	stale := filepath.Join(tmp, dirPrefix+"stale")
	if err := os.Mkdir(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stale, claimName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	orphan, err := start(stale, []string{"sleep", "60"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the orphan has entered itself", func() bool { _, err := readPid(orphan.pidFile); return err == nil })
	owned, claim, err := makeDir()
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Close()
	if _, err := os.Stat(stale); err != nil {
		t.Error("swept a directory that may just be in the making:", err)
	}
	old := time.Now().Add(-time.Minute)
	for _, dir := range []string{stale, owned} {
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	sweep(tmp)
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Error("the stale directory is still there:", err)
	}
	if _, err := os.Stat(owned); err != nil {
		t.Error("swept a directory with an owner:", err)
	}
	select {
	case <-orphan.ended:
	case <-time.After(timeout):
		t.Error("the orphan lives", orphan.kill())
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}
