package proc

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// stopTime limits how long the kernel may take to report the effect of a signal.
const stopTime = 10 * time.Second

// Freeze sends SIGSTOP to one process. It returns when the process has stopped or ended, because a
// thread runs on until it notices the signal. The connections of a frozen process stay open. So the
// other end of a connection notices nothing, as during a long garbage collection or in a paused
// container. The errors of Freeze, Resume and Kill wrap syscall.ESRCH if there is no such process.
func Freeze(pid int) error {
	return signal("freeze", pid, syscall.SIGSTOP, func(s Stat) bool { return s.Stopped() || s.Ended() })
}

// Resume makes a frozen process run again (SIGCONT). It does nothing to a running process.
func Resume(pid int) error {
	return signal("resume", pid, syscall.SIGCONT, func(s Stat) bool { return !s.Stopped() })
}

// Kill sends SIGKILL to one process and returns when the process has ended. The process
// may then still be a zombie, until its parent waits for it.
func Kill(pid int) error { return signal("kill", pid, syscall.SIGKILL, Stat.Ended) }

// FreezeFamily freezes a process and all its descendants, parents first, and returns their ids.
// Before it freezes each process, it calls the functions in first with that process's id. A process
// may start children before it stops, so FreezeFamily looks again until it finds no more.
func FreezeFamily(pid int, first ...func(pid int) error) (stopped []int, err error) {
	for again := true; again; {
		again = false
		for _, p := range Family(pid) {
			if slices.Contains(stopped, p) {
				continue
			}
			again = true
			stopped = append(stopped, p)
			for _, do := range first {
				err = errors.Join(err, do(p))
			}
			err = errors.Join(err, unlessGone(Freeze(p)))
		}
	}
	return stopped, err
}

func ResumeFamily(pid int) (err error) {
	for _, p := range Family(pid) {
		err = errors.Join(err, unlessGone(Resume(p)))
	}
	return err
}

// KillFamily ends a process and all its descendants, and returns when they have ended. It
// freezes them first, so that none of them starts a process that KillFamily would miss.
func KillFamily(pid int, first ...func(pid int) error) error {
	family, err := FreezeFamily(pid, first...)
	for _, p := range family {
		err = errors.Join(err, unlessGone(Kill(p)))
	}
	return err
}

func unlessGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// signal sends the signal s to a process. It returns when the function done reports that
// the signal had its effect, or when the process is gone. Without /proc it returns at once.
func signal(what string, pid int, s syscall.Signal, done func(Stat) bool) error {
	if err := syscall.Kill(pid, s); err != nil {
		return fmt.Errorf("%s %d: %w", what, pid, err)
	}
	for deadline := time.Now().Add(stopTime); ; time.Sleep(100 * time.Microsecond) {
		now, known := Of(pid)
		if !known || done(now) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s %d: still in state %c after %v", what, pid, now.State, stopTime)
		}
	}
}
