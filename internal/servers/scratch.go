package servers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
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
// first argument.
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
//
// Note: of an owner that is killed together with the watcher, as all processes of
// a container are, directories remain, and no servers.
type Scratch struct {
	dir   string
	watch *watcher
}

// logName is the file with what a server prints.
const logName = "server.log"

// NewScratch makes one that is empty.
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

// Dir is its path.
func (s *Scratch) Dir() string { return s.dir }

// Close removes it. It is called once.
func (s *Scratch) Close() error { return errors.Join(s.watch.close(), os.RemoveAll(s.dir)) }
