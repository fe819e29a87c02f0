package command

import (
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
)

// Spec says which command to run under which lock.
type Spec struct {
	Backend, Path string // name and path of the plugin
	Config        driver.Config
	Name          string   // of the lock
	Program       []byte   // path of the command; not a string, because JSON changes strings that are not UTF-8
	Argv          [][]byte // arguments of the command, its name first
	Label         string
	Run           string // value of the lock, by which the front finds the lease of this run

	TTL, AtLeast time.Duration // as in core.LockOptions
	Tick         time.Duration // the interval of tick.Every; 0 for a lock without ticks
	MaxHold      time.Duration // the command is ended after this time; 0 for never
	Try          bool          // do not wait
	Wait         time.Duration // longest wait; 0 for no end
	Lead         bool          // run the command as the leader of the election Name
	Restart      bool          // run the command again if it ends while this host leads
	Tell         bool          // say which holder the keeper waits for
	Verbose      bool          // say everything

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
