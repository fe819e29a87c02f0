package drivertest

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// T is the part of a test that a case needs. *testing.T satisfies it, and so
// does the T of "lockbench conform".
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // ends the case's goroutine
	Cleanup(func())
	Context() context.Context // ends just before the clean-ups run
}

// Harness is a fresh environment for one case: a store, or a namespace of one, that
// no other case uses. Open is required; an ability that is nil makes the cases
// that need it "not run", naming what is missing.
type Harness struct {
	// Open connects a new host to the harness's store. Two calls are two
	// hosts, except in scope "host", where they share one store in process and
	// the second call of a plugin harness opens a second, separate store. The
	// harness closes what it opened when the case ends.
	Open func(t T) driver.Backend
	// Other is Open in another namespace of the same store: same names there
	// never collide with those here. Nil when the backend has no namespaces.
	Other func(t T) driver.Backend
	// Denied is Open for a client that the server refuses: wrong password,
	// missing right. Nil when the server refuses no client.
	Denied func(t T) driver.Backend
	// Store controls the server behind the backend. NoServer reports that there is no server
	// to control, for example because the store is files: the cases about it are n/a.
	Store    Store
	NoServer bool
	// Plugin returns the control of the process behind a backend from Open.
	Plugin func(b driver.Backend) Process
	// Stacks returns the stacks of the process behind a backend from Open, for a
	// case that hangs. It may end the process.
	Stacks func(b driver.Backend) string
	// Host starts another host process with its own plugin on the same store.
	// That plugin releases the locks of a dead host after delay, 0: at once.
	Host func(t T, delay time.Duration) Host
	// Leftovers lists the entries of the case's namespace in the store: keys,
	// rows. It omits those that expire by themselves within two minutes. The
	// suite compares the leftovers of one name with those of many.
	Leftovers func(t T) []string
	// InProcess reports whether the backend runs in the process of the test, so
	// that there is nothing to kill: the cases about processes are n/a here
	// and belong to the run against the binary.
	InProcess bool
	// Cancels is how many acquires the case of random cancels makes; 0: 300.
	Cancels int

	props driver.Properties // as the backend stated them when the run began
	hook  hook
}

// Store is a server that a case may stop and start.
type Store interface {
	// Stop ends the server, as a crash would, so that no client can reach it.
	Stop(t T)
	// Start starts it again at the same address, with its data or without,
	// and returns when it answers.
	Start(t T, keepData bool)
	// Freeze and Resume send SIGSTOP and SIGCONT.
	Freeze(t T)
	Resume(t T)
}

// Process is a process that a case may kill or freeze. Methods fail the case
// when the process is already gone.
type Process interface {
	Pid() int
	Kill(t T)   // SIGKILL
	Freeze(t T) // SIGSTOP
	Resume(t T) // SIGCONT
}

// Host is another host process: the same binary started again. It uses
// core.Client over its own plugin, and answers one command at a time.
type Host interface {
	Process
	// Plugin is the plugin process of that host.
	Plugin() Process
	// Acquire tries once to get the lock, with AtLeast set if that is not 0, and
	// reports its token.
	Acquire(t T, name string, ttl, atLeast time.Duration) (token uint64, err error)
	// Enqueue starts an Acquire, of a lock with AtLeast set if that is not 0, in the
	// background and returns when it waits.
	Enqueue(t T, name string, ttl, atLeast time.Duration)
	// State returns at once the state of the held lease: Valid(), whether Done
	// is closed, and the name of the cause, "" while it is held.
	State(t T, name string) (valid, done bool, cause string)
	// Release releases the held lease.
	Release(t T, name string) error
}
