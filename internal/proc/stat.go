package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Stat is a process as /proc/PID/stat shows it (proc_pid_stat(5)).
type Stat struct {
	State   byte // of its first thread: 'T' is stopped by a signal, 'Z' has ended
	Parent  int
	Threads int           // number of living threads; the first thread counts even after its end
	CPU     time.Duration // processor time of its threads, in steps of 10 ms
	Reaped  time.Duration // processor time of ended children that the process has waited for
	// Start is the process's start time in clock ticks after boot. The kernel reuses process ids, so
	// only the id and Start together identify a process.
	Start string
}

// These are the positions of fields in /proc/PID/stat, counted from 0 after the command's name.
const (
	fieldState   = 0
	fieldParent  = 1
	fieldUser    = 11
	fieldSystem  = 12
	fieldReaped  = 13 // user time of children; the next field is their system time
	fieldThreads = 17
	fieldStart   = 19
)

// Tick is the unit of the processor times in /proc (USER_HZ, proc(5)).
const Tick = 10 * time.Millisecond

// Of returns the Stat of the process pid. It returns false if there is no such process,
// and on systems without /proc.
func Of(pid int) (Stat, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, false
	}
	return parse(string(text))
}

// All returns the Stat of every process, by process id. The result is empty on systems
// without /proc.
func All() map[int]Stat {
	all := map[int]Stat{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if s, ok := Of(pid); ok {
			all[pid] = s
		}
	}
	return all
}

// Family returns the ids of process pid and of all its descendants, parents first. A process group
// would not suffice, because a descendant leaves the group when it starts a session.
func Family(pid int) []int {
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		for _, p := range Children(family[i]) {
			if s, ok := Of(p); ok && !s.Ended() {
				family = append(family, p)
			}
		}
	}
	return family
}

// Children returns the ids of the child processes of process pid. The ids include ended children
// until pid waits for them.
//
// If process pid adopts orphans and waits for no child during the call, an empty list proves that
// pid has no descendants, except below another process that adopts orphans. When a child of pid
// ends, its children become children of pid before pid can wait for the ended child.
func Children(pid int) (all []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, f := range files {
		text, _ := os.ReadFile(f) // a thread that has ended has left its children to another thread
		// If a child vanishes while the kernel writes the list, the kernel can leave out another child.
		for range 10 { // if a process forks fast, two readings may never agree
			again, _ := os.ReadFile(f)
			if bytes.Equal(text, again) {
				break
			}
			text = again
		}
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(all, child)
			}
		}
	}
	if len(files) > 0 {
		return all
	}
	for child, s := range All() { // a kernel without CONFIG_PROC_CHILDREN
		if s.Parent == pid {
			all = append(all, child)
		}
	}
	return all
}

// parse reads a text "pid (command) state ...". The command may contain any characters.
func parse(text string) (s Stat, ok bool) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) <= fieldStart {
		return Stat{}, false
	}
	ok = true
	number := func(field int) int {
		n, err := strconv.Atoi(fields[field])
		ok = ok && err == nil
		return n
	}
	s = Stat{
		State: fields[fieldState][0], Parent: number(fieldParent), Threads: number(fieldThreads), Start: fields[fieldStart],
		CPU:    time.Duration(number(fieldUser)+number(fieldSystem)) * Tick,
		Reaped: time.Duration(number(fieldReaped)+number(fieldReaped+1)) * Tick,
	}
	return s, ok
}

// Ended reports whether the process has ended. An ended process stays visible until its
// parent waits for it. A process whose first thread has ended goes on if other threads run.
func (s Stat) Ended() bool {
	return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1
}

// Running reports whether process pid runs. A zombie (an ended process that its parent has not
// waited for) does not count as running, because some init processes never wait.
func Running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	s, known := Of(pid)
	return !known || !s.Ended()
}

func (s Stat) Stopped() bool { return s.State == 'T' }

// Waited returns, for each thread of process pid, the total time for which it was ready to run but
// had no processor. The keys are thread ids. The time does not include a wait that still goes on.
// The result is empty without Linux's schedstat (proc_pid_schedstat).
func Waited(pid int) map[int]time.Duration {
	out := map[int]time.Duration{}
	dirs, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid)) // the pattern is valid
	for _, dir := range dirs {
		var ran, waited int64
		text, err := os.ReadFile(filepath.Join(dir, "schedstat"))
		if err != nil {
			continue // the thread has ended
		}
		if _, err := fmt.Sscan(string(text), &ran, &waited); err != nil {
			continue
		}
		if tid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			out[tid] = time.Duration(waited)
		}
	}
	return out
}

// Resident returns the number of bytes of process pid that are resident in memory.
//
// Note: Resident does not read /proc/PID/stat, because the figure in that file is inexact on
// machines with many processors.
func Resident(pid int) (uint64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil { // not Linux
		kib, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
		if err != nil {
			return 0, fmt.Errorf("memory of process %d: %w", pid, err)
		}
		return kibibytes(string(bytes.TrimSpace(kib)))
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return kibibytes(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")))
		}
	}
	return 0, fmt.Errorf("process %d has no memory: it has ended", pid)
}

func kibibytes(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n << 10, err
}

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
