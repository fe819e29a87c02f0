package drivertest

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// T has those methods of a test that cases use. *testing.T satisfies T, and so does the T of
// "lockbench conform".
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // ends the case's goroutine
	Cleanup(func())
	Context() context.Context // ends just before the clean-ups run
}

// Harness is a fresh environment for one case: a store, or a namespace of a store, that no other
// case uses. Only Open is required. If a field that a case needs is nil, the case is n/a or "not
// run", and the result says why.
type Harness struct {
	// Open opens a backend on the harness's store, for a new host. If the scope is "host", the
	// backends of all calls share one store if InProcess is true, and each has a separate store if it
	// runs in a plugin. When the case ends, the harness closes these backends.
	Open func(t T) driver.Backend
	// Other is like Open, for another namespace of the same store: the same name in both namespaces
	// stands for two different locks. Nil if the backend has no namespaces.
	Other func(t T) driver.Backend
	// Denied is like Open, for a client that the server refuses, for example because
	// of a wrong password or a missing right. Nil if no such client is known.
	Denied func(t T) driver.Backend
	// Store controls the server behind the backend. NoServer is true if there is no server, for
	// example because the store consists of files. The cases that need a server are then n/a.
	Store    Store
	NoServer bool
	// Plugin returns the plugin process behind a backend from Open.
	Plugin func(b driver.Backend) Process
	// Stacks returns the goroutine stacks of the plugin process behind a backend
	// from Open. Stacks is called when a case hangs, and may end the process.
	Stacks func(b driver.Backend) string
	// Host starts another host process with another plugin on the same store. If the
	// host dies, that plugin releases the host's locks after delay; 0 means at once.
	Host func(t T, delay time.Duration) Host
	// Leftovers returns the entries (keys, rows) of the case's namespace in the store. It omits
	// entries that will expire within two minutes. The suite checks that the use of many locks leaves
	// no more entries than the use of one lock.
	Leftovers func(t T) []string
	// InProcess reports whether the backend runs in the process of the test. If it does, the cases
	// that kill processes are n/a.
	InProcess bool
	// Cancels is the number of acquires that a case cancels at random moments. Zero means 300.
	Cancels int

	props driver.Properties // as the backend returned them when the run began
	hook  hook
}

// Store is a server that a case may stop and start. Clean-ups call Start and Resume too, after
// t.Context() has ended.
type Store interface {
	// Stop ends the server as a crash would. No client can then reach it.
	Stop(t T)
	// Start starts the server again at the same address, with its data or
	// without, and returns when the server answers.
	Start(t T, keepData bool)
	// Freeze sends SIGSTOP to the server, and Resume sends SIGCONT.
	Freeze(t T)
	Resume(t T)
}

// Process is a process that a case may kill or freeze. If the process has
// ended already, the methods fail the case.
type Process interface {
	Pid() int
	Kill(t T)   // SIGKILL
	Freeze(t T) // SIGSTOP
	Resume(t T) // SIGCONT
}

// Host is another host process, started from the same binary. It has a core.Client
// with a separate plugin, and executes one command at a time.
type Host interface {
	Process
	// Plugin is the plugin process of that host.
	Plugin() Process
	// Acquire tries once to acquire the lock, with AtLeast set to atLeast, and returns the token.
	Acquire(t T, name string, ttl, atLeast time.Duration) (token uint64, err error)
	// Enqueue starts an Acquire in the background, with AtLeast set to atLeast. It returns when
	// that Acquire waits or was granted the lock.
	Enqueue(t T, name string, ttl, atLeast time.Duration)
	// State returns at once whether the host's lease is valid, whether its Done is closed, and the
	// name of the cause of its end. The name is "" while the lease is held.
	State(t T, name string) (valid, done bool, cause string)
	// Release releases the host's lease of the lock called name.
	Release(t T, name string) error
}
