package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/plugin/plugintest"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

const secret = "correct-horse-battery"

// TestSecretIsNowhere searches all processes for a server's password while lockbench uses that
// server. Then it searches all files and all output.
func TestSecretIsNowhere(t *testing.T) {
	server := redisServer(t, &redisserver.Options{Password: secret})
	dir, work := plugins(t), t.TempDir()
	target, out, tmp := filepath.Join(work, "target"), filepath.Join(work, "out"), filepath.Join(work, "tmp")
	if err := errors.Join(os.WriteFile(target, []byte("redis://:"+secret+"@"+server.Addr()), 0o600), os.Mkdir(tmp, 0o700)); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	cmd := exec.Command(plugintest.Build(t, "github.com/lockbench/lockbench/cmd/lockbench"),
		"run", "--quick", "--verbose", "--backends", "redis", "--scenarios", "acquire,takeover", "--runs", "1", "--clients", "1",
		"--target", "redis=@"+target, "--plugin-dir", dir, "-o", out)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the status is in ProcessState
	}()
	looked := 0
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-time.After(20 * time.Millisecond):
			looked += lookAtProcesses(t, tmp)
		}
	}
	if code := cmd.ProcessState.ExitCode(); code != exitOK {
		t.Fatalf("exit %d\n%s", code, printed.Bytes())
	}
	if looked == 0 {
		t.Error("no process was looked at")
	}
	if bytes.Contains(printed.Bytes(), []byte(secret)) {
		t.Errorf("it is printed:\n%s", printed.Bytes())
	}
	files := 0
	for _, root := range []string{out, tmp} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			files++
			text, err := os.ReadFile(path)
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("it stands in %s", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 4 {
		t.Errorf("only %d files were searched", files)
	}
}

// lookAtProcesses searches the arguments and the environment of all processes with TMPDIR=tmp
// (lockbench, hosts and plugins) for the password. It returns the number of processes.
func lookAtProcesses(t *testing.T, tmp string) int {
	t.Helper()
	dirs := processesWith(tmp)
	for _, dir := range dirs {
		for _, file := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil && strings.Contains(string(text), secret) {
				t.Errorf("it stands in the %s of %s", file, dir)
			}
		}
	}
	return len(dirs)
}
