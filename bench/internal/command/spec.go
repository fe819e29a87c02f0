package command

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
)

// Terms say when a command runs under a lock, and for how long.
type Terms struct {
	Name    string        // of the lock
	Label   string        // shown to people as the holder
	TTL     time.Duration // of the lease
	AtLeast time.Duration // the lock stays taken for at least this long; no more than TTL
	Tick    time.Duration // all hosts together run the command only once per Tick; 0 for no such limit
	MaxHold time.Duration // the command is ended after this time; 0 for never
	Try     bool          // do not wait for the lock
	Wait    time.Duration // longest wait; 0 for no limit
	Lead    bool          // run the command as the leader of the election called Name
	Restart bool          // with Lead: run the command again when it has ended
	Tell    bool          // write a message if another holder has the lock
	Verbose bool          // report everything
}

// Spec says which command to run under which lock.
type Spec struct {
	Terms
	Backend, Path string // name and path of the plugin
	Config        driver.Config
	Program       []byte   // path of the command; not a string, because JSON changes strings that are not UTF-8
	Argv          [][]byte // arguments of the command, its name first
	Run           string   // value of the lock, by which the front finds the lease of this run

	// The command inherits these from the front, but the keeper does not.
	Stdio   [3]uintptr       // descriptors of standard input, output and error
	Group   int              // the process group
	Ignored []syscall.Signal // the signals that the command ignores
}

type Kind string

const (
	Ended       Kind = ""            // the command has ended, or a signal has ended the wait for the lock
	Held        Kind = "held"        // another holder had the lock until the end of the wait
	Late        Kind = "late"        // no tick is due, or it is too late to run the last tick
	Lost        Kind = "lost"        // the lease was lost, or MaxHold is over; the command was ended
	Unavailable Kind = "unavailable" // the plugin or the store cannot be used
	Invalid     Kind = "invalid"     // the Spec does not fit the backend
	Failed      Kind = "failed"      // any other error
)

// End says how a run ended. If Kind is Ended, Status is as in a shell: 128 + n after signal n, 126
// or 127 if the start failed. Reason says why the start failed or why Kind is not Ended, unless the
// keeper has already reported this.
type End struct {
	Kind   Kind
	Status int
	Reason string
}

// Status returns the exit status that a shell shows for a process that has ended.
func Status(w syscall.WaitStatus) int {
	if w.Signaled() {
		return 128 + int(w.Signal())
	}
	return w.ExitStatus()
}

// Unstarted returns the exit status that a shell shows for a command that err kept from starting.
func Unstarted(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return 127
	}
	return 126
}

// line is a message from the keeper, which holds the lease, to the front, which the user started.
type line struct {
	Say     string `json:",omitempty"` // shown to people if Verbose
	Warn    string `json:",omitempty"` // always shown to people
	Plugin  plug   `json:",omitzero"`  // the keeper's plugin; set when the keeper has got a lease
	Stopped int    `json:",omitempty"` // process id of the command, which a signal has stopped
	End     *End   `json:",omitempty"` // the last line
}

// plug is a plugin's process. A later process with the same pid has another start time.
type plug struct {
	Pid   int
	Start string
}

func (p plug) running() int {
	if s, ok := proc.Of(p.Pid); !ok || s.Start != p.Start {
		return 0
	}
	return p.Pid
}

// order is a message from the front, which the user started, to the keeper, which holds the lease.
type order struct {
	Signal syscall.Signal // for the command
	Knows  bool           // the command has already received the signal
}

// role is the environment variable that makes a process a keeper, and called is the keeper's name.
const (
	role   = "LOCKBENCH_KEEPER"
	called = "lockkeeper"
)
