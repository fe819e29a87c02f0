package servers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// watch waits until its standard input ends, which is when the owner closes
// the pipe or dies in whatever way, and then removes the server and its
// directory. Moving the directory first shuts the door: a server that is just
// being started cannot enter itself any more, and does not start.
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
// Note: a shell does it, not this binary started again, so that test binaries
// of other packages need no hook in their main. Pdeathsig would follow a
// thread, exists on Linux only, and leaves the directory.
type watcher struct {
	cmd      *exec.Cmd
	lifeline io.Closer
}

// startWatcher starts a child that runs script, with what it cleans up as its
// first argument, and keeps the files open.
func startWatcher(script, what string, files ...*os.File) (*watcher, error) {
	cmd := exec.Command("/bin/sh", "-c", script, "lockbench-env-watcher", what)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.ExtraFiles = files
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("servers: start the watcher: %w", err)
	}
	return &watcher{cmd: cmd, lifeline: lifeline}, nil
}

// close makes the watcher clean up, and returns when it has.
func (w *watcher) close() error {
	_ = w.lifeline.Close() // only fails when it is closed already
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("servers: watcher: %w", err)
	}
	return nil
}

// Scratch is a temporary directory that goes with the process that owns it,
// whatever the end of that is. Its methods may be called from any goroutine.
type Scratch struct {
	dir   string
	claim *os.File
	watch *watcher
}

// NewScratch makes one that is empty, but for a file of its own.
func NewScratch() (*Scratch, error) {
	dir, claim, err := makeDir()
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	w, err := startWatcher(watch, dir, claim)
	if err != nil {
		return nil, errors.Join(err, claim.Close(), os.RemoveAll(dir))
	}
	return &Scratch{dir: dir, claim: claim, watch: w}, nil
}

// Dir is its path.
func (s *Scratch) Dir() string { return s.dir }

// Close removes it. It is called once.
func (s *Scratch) Close() error {
	return errors.Join(s.watch.close(), s.claim.Close(), os.RemoveAll(s.dir))
}

const (
	dirPrefix = "lockbench-env-"
	claimName = "claim"
	logName   = "server.log"
)

// makeDir makes a directory that its owner claims by a file lock. The lock is
// shared with the watcher, so a directory without it belongs to nobody.
func makeDir() (dir string, claim *os.File, err error) {
	sweep(os.TempDir())
	dir, err = os.MkdirTemp("", dirPrefix)
	if err != nil {
		return "", nil, err
	}
	claim, err = os.OpenFile(filepath.Join(dir, claimName), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(claim.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, claim, nil
}

// sweepAge keeps the sweep off directories that are just being made.
const sweepAge = 10 * time.Second

// sweep removes what remains when owner and watcher died together, as they do
// when a container is killed. A server is killed only if its working directory
// proves that it is the one: process ids are used again.
func sweep(tmp string) {
	dirs, _ := filepath.Glob(filepath.Join(tmp, dirPrefix+"*")) // the pattern is valid
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		sweepDir(dir)
	}
}

func sweepDir(dir string) {
	f, err := os.OpenFile(filepath.Join(dir, claimName), os.O_RDWR, 0)
	if err != nil {
		return // not ours to judge: another user's, or not made by us
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return
	}
	if pid, err := readPid(filepath.Join(dir, "server.pid")); err == nil {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err == nil && cwd == dir {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
	_ = os.RemoveAll(dir) // tried again by the next sweep
}
