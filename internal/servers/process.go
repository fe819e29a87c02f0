package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// launch is what a server process is started through: it enters itself in
// the directory before it becomes the server, so that there is no moment at
// which the watcher does not know of it. When the directory is gone before, or
// has gone while it did so, the server never starts.
const launch = `echo $$ > "$0" && [ -f "$0" ] && exec "$@"`

// process is one run of a server program, in a process group of its own: Ctrl-C
// in the terminal reaches lockbench only, and the whole group can be killed. It
// is in the session of who measures it, with whom it shares the CPUs: a server in
// its own would stall for seconds beside load (decision bench-28).
type process struct {
	pid     int
	pidFile string
	ended   chan struct{}
	err     error // of Wait; valid once ended is closed
}

func start(dir string, argv []string) (*process, error) {
	out, err := os.OpenFile(filepath.Join(dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	pidFile := filepath.Join(dir, "server.pid")
	cmd := exec.Command("/bin/sh", append([]string{"-c", launch, pidFile}, argv...)...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, pidFile: pidFile, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// kill ends the process and what it has forked, and returns when it was
// waited for.
func (p *process) kill() error {
	err := syscall.Kill(-p.pid, syscall.SIGKILL)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("servers: kill %d: %w", p.pid, err)
	}
	select {
	case <-p.ended:
		return os.RemoveAll(p.pidFile)
	case <-time.After(30 * time.Second):
		return fmt.Errorf("servers: process %d does not end", p.pid)
	}
}

// alive reports whether the process runs.
func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// tail returns the end of a log as one line, for error messages: its last
// errors if it marks them, for some servers say much after the one that
// counts.
func tail(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, logName))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	marked := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, "[ERROR]") })
	if len(marked) > 0 {
		lines = marked
	}
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
