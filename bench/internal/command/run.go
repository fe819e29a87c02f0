package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/proc"
)

const (
	// If its lease is not renewed, a command gets SIGTERM when TTL/termPart of the lease is left, and
	// SIGKILL when TTL/killPart is left.
	termPart, killPart = 4, 10
	// maxHoldGrace is the time from SIGTERM to SIGKILL when MaxHold is over.
	maxHoldGrace = 10 * time.Second
	// lookEvery limits the time until a run notices that the machine has slept.
	lookEvery = time.Second
	// leftAfter is the time from the command's end to the report about processes that it left behind.
	leftAfter = time.Second
)

type run struct {
	*keeper
	tree
	held  held
	start time.Time

	status *syscall.WaitStatus // of the command, when it has ended
	over   time.Time           // when the command has ended
	halted int                 // the number of tries left to resume the front, which stops itself with the command
	told   bool                // lockbench has reported the processes that the command left behind
	lost   string              // why the command must end early; "" if it need not
	termed bool
	killAt time.Time // when the command is killed if it has not ended; zero for never
	deny   bool      // lockbench has reported a process that cannot be killed
}

// hold runs the command under the lease h until all processes of the command have ended.
//
// It releases h when the tree (the command and all processes that it started) is empty. So, unless
// the keeper dies, the lock is free only when none of these processes is left.
func (k *keeper) hold(h held) End {
	r := &run{keeper: k, held: h, start: time.Now(), tree: tree{func() int {
		pid, _ := plugin.ProcessOf(k.backend)
		return pid
	}}}
	started := r.begin()
	for started == nil && r.reap(r.took) {
		r.look(time.Now())
		r.wait()
	}
	if err := h.Release(context.Background()); err != nil && r.lost == "" && !errors.Is(err, core.ErrNotHeld) {
		k.say(line{Warn: fmt.Sprintf("the lock may still be taken: %v", err)})
	}
	switch {
	case r.lost != "":
		return End{Kind: Lost}
	case started != nil && k.wanted.Err() != nil:
		return k.failed(started)
	case started != nil:
		return End{Status: Unstarted(started), Reason: fmt.Sprintf("%s: %v", k.spec.Argv[0], started)}
	case r.status == nil: // other code has waited for the command
		return End{Kind: Failed, Reason: "the command has ended with an unknown status"}
	}
	return End{Status: Status(*r.status)}
}

// begin starts the command in the front's process group.
func (r *run) begin() error {
	// A lease that was granted to a waiter is short until its first renewal, so wait for this renewal.
	for time.Until(r.held.Deadline()) <= r.spec.TTL/termPart && r.wanted.Err() == nil && r.held.Err() == nil {
		r.wait()
	}
	if err := r.held.Err(); err != nil {
		r.end(fmt.Sprintf("lost %q: %v", r.spec.Name, err), time.Now())
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.wanted.Err(); err != nil {
		return err
	}
	attr := &syscall.SysProcAttr{Setpgid: true, Pgid: r.spec.Group}
	dieWithParent(attr)
	// If lockbench itself runs under a lock, it has these variables already. The last values count.
	env := (&exec.Cmd{Env: append(os.Environ(),
		"LOCKBENCH_LOCK="+r.spec.Name,
		"LOCKBENCH_TOKEN="+strconv.FormatUint(r.held.Token(), 10),
		"LOCKBENCH_LEASE_UNTIL="+r.held.Deadline().UTC().Format(time.RFC3339Nano))}).Environ()
	if !r.at.IsZero() {
		env = append(env, "LOCKBENCH_TICK="+r.at.UTC().Format(time.RFC3339))
	}
	var argv []string
	for _, arg := range r.spec.Argv {
		argv = append(argv, string(arg))
	}
	pid, err := syscall.ForkExec(string(r.spec.Program), argv, &syscall.ProcAttr{Env: env, Files: r.spec.Stdio[:], Sys: attr})
	if err == nil {
		r.pid = pid
	}
	return err
}

func (r *run) took(pid int, status syscall.WaitStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case pid != r.pid:
		return
	case status.Stopped():
		r.halted = 0
		r.say(line{Stopped: pid})
		return
	case !status.Continued():
		r.status, r.over, r.pid = &status, time.Now(), 0
	}
	r.halted = frontResumes
	r.resume()
}

// frontResumes is the number of tries to resume the front. The first try may be too early, because
// the front may not have stopped itself yet.
const frontResumes = 3

// resume resumes the front with SIGCONT. The front stops itself when a signal stops the command.
func (r *run) resume() {
	if r.halted == 0 || r.fronted.Err() != nil {
		return
	}
	r.halted--
	if front, _ := proc.Of(os.Getppid()); front.Stopped() {
		r.resumed.Store(time.Now().UnixNano())
		_ = syscall.Kill(os.Getppid(), syscall.SIGCONT) // the front may have ended
	}
}

// look decides whether the command must end, and sends the signals that end it.
func (r *run) look(now time.Time) {
	r.resume()
	left := r.held.Deadline().Sub(now)
	ttl := r.spec.TTL
	err := r.held.Err()
	switch {
	case r.fronted.Err() != nil:
		r.end("lockbench was killed", now)
	case r.wanted.Err() != nil: // a signal came after the command had ended, so the processes that it left must end
		r.killAt = now
	case err != nil:
		r.end(fmt.Sprintf("lost %q: %v", r.spec.Name, err), now)
	case left <= ttl/killPart:
		r.end(fmt.Sprintf("lost %q: the store is unreachable: not renewed", r.spec.Name), now)
	case left <= ttl/termPart:
		r.end(fmt.Sprintf("lost %q: the store is unreachable: not renewed, with %v left", r.spec.Name, left.Round(time.Millisecond)), now.Add(left-ttl/killPart))
	case r.spec.MaxHold > 0 && now.Sub(r.start) >= r.spec.MaxHold:
		r.end(fmt.Sprintf("%q was held for %v, its longest time", r.spec.Name, r.spec.MaxHold), now.Add(maxHoldGrace))
	case r.status != nil && !r.told && now.Sub(r.over) >= leftAfter:
		r.told = true
		r.say(line{Warn: fmt.Sprintf("%s has ended, and keeps %q until what it left behind has", r.spec.Argv[0], r.spec.Name)})
	}
	switch {
	case r.killAt.IsZero():
	case !now.Before(r.killAt):
		if r.tree.signal(syscall.SIGKILL) && !r.deny {
			r.deny = true
			r.say(line{Warn: fmt.Sprintf("%s has started what another user owns: it cannot be killed, and may outlive the lease", r.spec.Argv[0])})
		}
	case !r.termed:
		r.termed = true
		r.tree.signal(syscall.SIGTERM)
		r.tree.signal(syscall.SIGCONT) // a stopped process does not end by SIGTERM
	}
}

// end reports, at its first call, why the command must end. Each call sets the time at which the
// command is killed, unless an earlier call has set an earlier time.
func (r *run) end(reason string, at time.Time) {
	if r.lost == "" {
		r.lost = reason
		r.say(line{Warn: reason})
	}
	if r.killAt.IsZero() || at.Before(r.killAt) {
		r.killAt = at
	}
}

// wait waits for the next event, or until the look method may have work to do.
func (r *run) wait() {
	now := time.Now()
	pause := min(lookEvery, time.Until(r.held.Deadline())-r.spec.TTL/termPart)
	if r.spec.MaxHold > 0 {
		pause = min(pause, time.Until(r.start.Add(r.spec.MaxHold)))
	}
	if !r.killAt.IsZero() {
		pause = max(r.killAt.Sub(now), pauseAfter(r.killAt))
	}
	timer := time.NewTimer(max(pause, killPause))
	defer timer.Stop()
	fronted, wanted, done := r.fronted.Done(), r.wanted.Done(), r.held.Done()
	if !r.killAt.IsZero() && !now.Before(r.killAt) { // the command is being killed, so these events no longer matter
		fronted, wanted, done = nil, nil, nil
	}
	select {
	case <-timer.C:
	case <-r.changes:
	case <-fronted:
	case <-wanted:
	case <-done:
	}
}

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
