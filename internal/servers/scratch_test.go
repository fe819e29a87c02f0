package servers

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockbench/lockbench/internal/proc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestInit checks that Init passes the configuration to the plugin and reports the plugin's error.
func TestInit(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "plugin")
	for script, want := range map[string]string{
		`[ "$1" = init ] && grep -q "^address=h:1,h:2$" && exit 0; exit 1`: "",
		"echo no nodes >&2; exit 1":                                        "no nodes",
	} {
		if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		err := Init(t.Context(), binary, "prefix=x", "address=h:1,h:2")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("init with a plugin that does %q: %v", script, err)
		}
	}
}

// A server that ends by itself must leave no process of its group, and no file with its pid.
func TestServerThatEnds(t *testing.T) {
	dir := t.TempDir()
	p, err := start(dir, []string{"sh", "-c", "sleep 600 & echo $! > child"})
	if err != nil {
		t.Fatal(err)
	}
	<-p.ended
	text, err := os.ReadFile(filepath.Join(dir, "child"))
	child, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if _, gone := os.Stat(p.pidFile); child == 0 || !errors.Is(gone, os.ErrNotExist) {
		t.Fatal(err, gone)
	}
	await(t, child)
}

func await(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(Timeout); proc.Running(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a process lives", pid, proc.Kill(pid))
		}
	}
}

// TestNothingLeft closes the other end of a watcher's pipe. The watcher must then end a frozen
// server and its process in another session, and remove the server's directory.
func TestNothingLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	s, err := NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	p, err := start(s.Dir(), []string{"sh", "-c", "setsid sleep 600 & exec sleep 600"})
	if err != nil {
		t.Fatal(err)
	}
	var family []int
	err = Retry(t.Context(), "it is in two sessions", func() error {
		family = proc.Family(p.pid)
		group, err := syscall.Getpgid(family[len(family)-1])
		if err == nil && group == p.pid {
			err = errors.New("not yet")
		}
		return err
	})
	if err := errors.Join(err, p.freeze(), s.watch.close()); err != nil {
		t.Error(err)
	}
	for _, pid := range family {
		await(t, pid)
	}
	if left, err := filepath.Glob(s.Dir() + "*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
