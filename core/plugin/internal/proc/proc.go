// Package proc reads what the kernel shows of a process, where it shows it.
package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Stat is a process as /proc/PID/stat shows it (proc_pid_stat(5)).
type Stat struct {
	State   byte // of its first thread: 'T' is stopped by a signal, 'Z' has ended
	Threads int  // that have not ended; an ended first thread counts
	// Start is when it started, in clock ticks after boot. Together with its id
	// it names a process that no later one can be taken for.
	Start string
}

// Fields of the text behind the command, counted from 0.
const (
	fieldState   = 0
	fieldThreads = 17
	fieldStart   = 19
)

// Of reads the stat of process pid. It reports false where there is no such
// process, and on systems without /proc.
func Of(pid int) (Stat, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, false
	}
	// "pid (command) state ...", where the command may contain anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) <= fieldStart {
		return Stat{}, false
	}
	threads, err := strconv.Atoi(fields[fieldThreads])
	if err != nil {
		return Stat{}, false
	}
	return Stat{State: fields[fieldState][0], Threads: threads, Start: fields[fieldStart]}, true
}

// Ended reports whether the process runs no more. A parent that does not wait
// for it keeps it visible; a first thread that has ended alone is not its end.
func (s Stat) Ended() bool {
	return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1
}

// Stopped reports whether a signal has stopped the process.
func (s Stat) Stopped() bool { return s.State == 'T' }
