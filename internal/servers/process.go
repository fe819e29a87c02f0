package servers

import (
	"bytes"
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

	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
)

// launch is the script that starts a server process. The script writes its pid into a file in the
// server's directory. Then the script becomes the server by exec, with the same pid. If the
// directory is gone by then, the script does not start the server.
const launch = `echo $$ > "$0" && [ -f "$0" ] && exec "$@"`

// process is one run of a server program. It has its own process group, so Ctrl-C in the terminal
// reaches only lockbench, and lockbench can kill the whole group. The server stays in the session
// of the measuring process and shares the CPUs with that process. A server in another session would
// stall for seconds under load (decision bench-28).
type process struct {
	pid     int
	pidFile string
	marks   []string // files that Mark has written for its processes
	ended   chan struct{}
	err     error // result of Wait; valid once the channel ended is closed
}

// command returns a command that runs argv in the directory dir, in a new process group. The
// command writes the group's id into pidFile, so that the watcher of dir can kill the group. The
// caller must remove pidFile when the command has ended.
func command(ctx context.Context, dir, pidFile string, argv []string) *exec.Cmd {
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
	cmd := command(context.Background(), dir, pidFile, argv)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, pidFile: pidFile, ended: make(chan struct{})}
	go func() {
		p.err = proc.Reap(cmd, func() {
			_ = syscall.Kill(-p.pid, syscall.SIGKILL) // fails if no process of the group is left
			_ = os.RemoveAll(pidFile)                 // the whole directory is removed later
		})
		close(p.ended)
	}()
	return p, nil
}

// Install makes a server's data directory with a command, unless the directory exists. The function
// fill returns the command for a given directory, which has another name until it is complete, so
// that an interrupted installation does not look complete.
func Install(ctx context.Context, data string, fill func(fresh string) (argv []string, err error)) error {
	if _, err := os.Stat(data); err == nil {
		return nil
	}
	dir, fresh, pidFile := filepath.Dir(data), data+".new", data+".pid"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	argv, err := fill(fresh)
	if err != nil {
		return err
	}
	cmd := command(ctx, dir, pidFile, argv)
	defer os.Remove(pidFile)
	// In a shared TMPDIR, a server that starts would remove the temporary tables of other servers.
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, bytes.TrimSpace(out))
	}
	return os.Rename(fresh, data)
}

// quitWithin is the longest time that a server may take to end after the quit method's signal.
const quitWithin = 3 * time.Second

func (p *process) quit(how syscall.Signal) {
	if !p.alive() {
		return
	}
	_ = errors.Join(p.resume(), syscall.Kill(p.pid, how)) // if this fails, kill ends the process
	select {
	case <-p.ended:
	case <-time.After(quitWithin):
	}
}

// kill ends the process and all its descendants, even descendants in another session (setsid).
func (p *process) kill() error {
	if !p.alive() {
		return nil // if it ended while it was frozen, the watcher ends its frozen descendants
	}
	mark := func(pid int) error {
		_ = p.mark(pid) // even if the file cannot be written, the process is killed
		return nil
	}
	if err := proc.KillFamily(p.pid, mark); err != nil {
		return fmt.Errorf("servers: kill %d: %w", p.pid, err)
	}
	select {
	case <-p.ended:
		return p.unmark()
	case <-time.After(30 * time.Second):
		return fmt.Errorf("servers: process %d does not end", p.pid)
	}
}

func (p *process) freeze() error {
	_, err := proc.FreezeFamily(p.pid, p.mark)
	return err
}

func (p *process) resume() error {
	if err := proc.ResumeFamily(p.pid); err != nil {
		return err
	}
	return p.unmark()
}

// mark records the process pid in a file if the process is in another group than the server.
func (p *process) mark(pid int) error {
	if group, err := syscall.Getpgid(pid); err != nil || group == p.pid {
		return nil // the process has ended, or the watcher ends it by pidFile
	}
	file, err := Mark(filepath.Dir(p.pidFile), pid)
	p.marks = append(p.marks, file)
	return err
}

func (p *process) unmark() error {
	marks := p.marks
	p.marks = nil
	return inject.Each(marks, os.RemoveAll)
}

// Mark writes a file which says that the process pid may be frozen. The caller removes the file
// later. If this process is killed before that, the watcher of the directory dir ends the group of
// pid, because a frozen process cannot end by itself. Mark does nothing if there is no process pid.
func Mark(dir string, pid int) (file string, err error) {
	group, err := syscall.Getpgid(pid)
	if pid <= 0 || errors.Is(err, syscall.ESRCH) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, fmt.Sprint("stopped-", pid, ".pid"))
	return file, os.WriteFile(file, fmt.Appendln(nil, group), 0o600)
}

func (p *process) alive() bool { return !proc.Closed(p.ended) }

// tail returns the last three lines of the log in dir as one line, or the stack of a crash. If some
// lines are marked as errors, it uses only these, because servers may print other lines after them.
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

// watch is the script of a watcher. It waits until its parent ends or closes the pipe to its
// standard input. It then renames the server's directory, kills the server and removes the
// directory. After the renaming, a server that is just being started cannot write its pid, and does
// not start.
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

// watcher is a child process that removes a server when its parent has ended. It is a shell script:
// if it were this program, each test binary that starts servers would need a hook in its main. A
// signal at the parent's end (Pdeathsig) would not remove the directory.
type watcher struct {
	cmd      *exec.Cmd
	lifeline io.Closer
}

// startWatcher runs script, which later removes the directory or project named in what.
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

// close makes the watcher remove what it watches, and returns when the watcher has ended.
func (w *watcher) close() error {
	_ = w.lifeline.Close() // fails only if the pipe is already closed
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("servers: watcher: %w", err)
	}
	return nil
}

// Scratch is a temporary directory. A watcher process removes it when the process that made the
// directory ends in any way. Any goroutine may call the methods.
//
// Note: the end of a container kills this process and its watcher together. The directory then
// remains, but the end of the container has killed the servers.
type Scratch struct {
	dir   string
	watch *watcher
}

const logName = "server.log"

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

func (s *Scratch) Dir() string { return s.dir }

// Close removes the directory. It must be called only once.
func (s *Scratch) Close() error { return errors.Join(s.watch.close(), os.RemoveAll(s.dir)) }
