package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// launch is the script that starts a server process. It writes its pid into a file in the
// server's directory before it becomes the server, so that the watcher always knows the
// pid. If the directory is removed before or meanwhile, the server never starts.
const launch = `echo $$ > "$0" && [ -f "$0" ] && exec "$@"`

// process is one run of a server program, in its own process group, so that Ctrl-C
// in the terminal reaches lockbench only and the whole group can be killed. It stays
// in the session of the measuring process and shares the CPUs with it. A server in
// its own session would stall for seconds beside load (decision bench-28).
type process struct {
	pid     int
	pidFile string
	ended   chan struct{}
	err     error // result of Wait; valid once the channel ended is closed
}

// Command returns a command that runs argv in dir, in a new process group. The pid of the group
// is in pidFile, by which dir's watcher ends the group. The caller removes pidFile after the end.
func Command(ctx context.Context, dir, pidFile string, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", launch, pidFile}, argv...)...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

func start(dir string, argv []string) (*process, error) {
	out, err := os.OpenFile(filepath.Join(dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	pidFile := filepath.Join(dir, "server.pid")
	cmd := Command(context.Background(), dir, pidFile, argv)
	cmd.Stdout, cmd.Stderr = out, out
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

// quitWithin is how long a server may take to end after it was asked to.
const quitWithin = 3 * time.Second

// quit asks the process to end by the signal how, and waits for at most quitWithin.
func (p *process) quit(how syscall.Signal) {
	if !p.alive() {
		return
	}
	_ = errors.Join(proc.ResumeFamily(p.pid), syscall.Kill(p.pid, how)) // if this fails, kill ends the process
	select {
	case <-p.ended:
	case <-time.After(quitWithin):
	}
}

// kill ends the process and all its descendants, even descendants that have begun
// another session (setsid), and returns when the process was reaped.
func (p *process) kill() error {
	var err error
	if p.alive() {
		err = proc.KillFamily(p.pid)
	}
	if group := syscall.Kill(-p.pid, syscall.SIGKILL); !errors.Is(group, syscall.ESRCH) {
		err = errors.Join(err, group)
	}
	if err != nil {
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

// tail returns the end of the log in dir as one line, for error messages. If the log marks errors,
// it returns the last errors, because some servers print much after the error that matters.
func tail(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, logName))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, " got signal ") }); i >= 0 {
		return strings.Join(lines[i:min(len(lines), i+60)], "\n") // a crash, with its stack
	}
	marked := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, "[ERROR]") })
	if len(marked) > 0 {
		lines = marked
	}
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// watch is the script of a watcher. It waits until its standard input ends
// because the owner closes the pipe or dies in any way. It then kills the server
// and removes its directory. It moves the directory first, so that a server that
// is just being started can no longer write its pid, and does not start.
const watch = `
trap '' HUP INT TERM
while read -r _; do :; done
mv "$1" "$1.ended" 2>/dev/null || exit 0
for f in "$1.ended"/*.pid; do
	[ -f "$f" ] && read -r pid < "$f" && kill -s KILL -- "-$pid" 2>/dev/null
done
n=0
until rm -rf "$1.ended" 2>/dev/null || [ $n -ge 100 ]; do n=$((n+1)); sleep 0.1; done
`

// watcher is the child that cleans up after its owner.
//
// Note: the watcher is a shell, not this binary started again, so that test
// binaries of other packages need no hook in their main. Pdeathsig would act at the
// end of a thread, exists on Linux only, and would leave the directory.
type watcher struct {
	cmd      *exec.Cmd
	lifeline io.Closer
}

// startWatcher starts a child that runs script. The script's first argument is what,
// the name of the directory or project to clean up.
func startWatcher(script, what string) (*watcher, error) {
	cmd := exec.Command("/bin/sh", "-c", script, "lockbench-env-watcher", what)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("servers: start the watcher: %w", err)
	}
	return &watcher{cmd: cmd, lifeline: lifeline}, nil
}

// close makes the watcher clean up, and returns when it has ended.
func (w *watcher) close() error {
	_ = w.lifeline.Close() // fails only if it is already closed
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("servers: watcher: %w", err)
	}
	return nil
}

// Scratch is a temporary directory that is removed after any end of the process
// that owns it. Its methods may be called from any goroutine.
//
// Note: if the owner is killed together with the watcher, as all processes of a
// container are, directories remain, but no servers.
type Scratch struct {
	dir   string
	watch *watcher
}

// logName is the file for the output of a server.
const logName = "server.log"

// NewScratch makes an empty Scratch.
func NewScratch() (*Scratch, error) {
	dir, err := os.MkdirTemp("", "lockbench-env-")
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	w, err := startWatcher(watch, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &Scratch{dir: dir, watch: w}, nil
}

// Dir is the path of the directory.
func (s *Scratch) Dir() string { return s.dir }

// Close removes the directory. It is called once.
func (s *Scratch) Close() error { return errors.Join(s.watch.close(), os.RemoveAll(s.dir)) }
