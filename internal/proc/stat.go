package proc

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
