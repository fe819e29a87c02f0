package command

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// These constants limit the pause between two tries to kill the processes of a tree. The pause is a
// tenth of the time since the first try, because a process may wait in the kernel for hours.
const (
	killPause    = time.Millisecond
	maxKillPause = 100 * time.Millisecond
)

func pauseAfter(start time.Time) time.Duration {
	return min(max(time.Since(start)/10, killPause), maxKillPause)
}

// tree is all descendants of this process, except one spared child and the descendants of that
// child. Only one goroutine may use a tree. Other code may reap only the spared child.
type tree struct {
	spare func() (pid int) // 0 for none
}

// children returns this process's children that belong to the tree, even those that have ended.
func (t tree) children() []int {
	spared := t.spare()
	return slices.DeleteFunc(proc.Children(os.Getpid()), func(pid int) bool { return pid == spared })
}

// signal sends the signal sig to every process of the tree. The refused result is true if this
// process was not permitted to signal one of them.
func (t tree) signal(sig syscall.Signal) (refused bool) {
	type node struct{ pid, parent int }
	var all []node
	for _, pid := range t.children() {
		all = append(all, node{pid, os.Getpid()})
	}
	for i := 0; i < len(all); i++ {
		n := all[i]
		for _, pid := range proc.Children(n.pid) {
			all = append(all, node{pid, n.pid})
		}
		p, err := os.FindProcess(n.pid)
		if err != nil {
			continue
		}
		// The pid may belong to another process by now, so check the parent while the handle is open. If
		// the process has a new parent, the loop finds it as a child of that parent.
		if now, ok := proc.Of(n.pid); ok && now.Parent == n.parent {
			refused = errors.Is(p.Signal(sig), syscall.EPERM) || refused
		}
		_ = p.Release() // Release does not fail
	}
	return refused
}

// reap reaps the children that have ended, and calls the function took with each new status. It
// reports whether a child is left. Only reap waits for children. So no child vanishes while
// [proc.Children] lists them, and an empty list proves that the tree is empty.
func (t tree) reap(took func(pid int, status syscall.WaitStatus)) (left bool) {
	for {
		children, waited := t.children(), false
		for _, pid := range children {
			var status syscall.WaitStatus
			if got, err := syscall.Wait4(pid, &status, syscall.WNOHANG|syscall.WUNTRACED|syscall.WCONTINUED, nil); err == nil && got == pid {
				waited = true
				took(pid, status)
			}
		}
		if len(children) == 0 || !waited {
			return len(children) > 0
		}
	}
}

// kill kills every process of the tree, and returns when the tree is empty.
func (t tree) kill() {
	start := time.Now()
	for t.reap(func(int, syscall.WaitStatus) {}) {
		t.signal(syscall.SIGKILL)
		time.Sleep(pauseAfter(start))
	}
}
