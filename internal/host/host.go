// Package host runs hosts as operating system processes that can be killed and
// frozen from outside: each takes locks through a plugin, or a library, of its
// own, and tells of each hold: the grant, renewals, the last moment at which the
// lease called itself valid, its loss, its release, and writes to guarded
// resources.
//
// A host has orders of two kinds. [Process.Work] starts callers that ask, hold and
// release over and over, or, as [Process.Acquire] has them, hold what they get
// until they are told to release it. The others are single calls and loops that
// are timed: a Process is a [load.Locker], and see [Process.Cycle].
//
// A process is the running binary started again, whose main (or TestMain) must
// call [Main] first. What it sees comes out of it at once, so that little is
// lost with one that is killed.
package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/results"
)

// role makes a binary that calls Main a host. Builds of other versions know it
// by this name, too: Spec.Program may be one.
const role = "LOCKBENCH_RECORDER"

// Main makes this process a host and ends it, when it was started as one;
// otherwise it does nothing. Call it first in main or TestMain.
func Main() { proc.Become(role, "host", openAgent) }

// Spec says through what a host takes its locks, and to what it writes under
// them.
type Spec struct {
	Backend string        `json:"backend"`
	Path    string        `json:"path"` // of the plugin binary
	Config  driver.Config `json:"config"`
	NoMTLS  bool          `json:"no_mtls,omitempty"`
	// Baseline names a library that is used instead of the plugin, "" for none.
	Baseline string `json:"baseline,omitempty"`
	Host     int    `json:"host"` // its number in what it tells
	// Zero is when, on the machine's clock, the clock stands at zero by which the
	// host tells its times: nobody converts them.
	Zero int64 `json:"zero_ns,omitempty"`
	// Resources are what it writes to. A host without them is one that is measured:
	// it writes nothing, logs nothing, and has no heartbeat.
	Resources Resources `json:"resources"`
	// TempDir is where the host and its plugin make their temporary files; ""
	// for the system's.
	TempDir string `json:"-"`
	// Program is the one to start; "" for this one. Its main must call [Main].
	Program string `json:"-"`
}

// measured reports whether it is the spec of a host that is measured.
func (s Spec) measured() bool { return s.Resources.Dir == "" }

// What a host is told. The first orders have the names by which older builds
// know them.
const (
	opWork    = "work"
	opRelease = "release" // of what was started
	opReopen  = "reopen"

	// These are answered.
	opAcquireOne = "acquire-one"
	opReleaseOne = "release-one"
	opCycle      = "cycle"
	opAttempts   = "attempts" // of the last cycles
	opUse        = "read"

	opCancel = "cancel" // another order
)

// order is one line to the process.
type order struct {
	ID      int64         `json:"id,omitempty"`
	Op      string        `json:"op"`             // one of the above, or a [Surrounding]
	Name    string        `json:"name,omitempty"` // of acquire-one
	TTL     time.Duration `json:"ttl_ns,omitempty"`
	First   int           `json:"first,omitempty"`      // number of the first lock to release
	Timeout time.Duration `json:"timeout_ns,omitempty"` // of reopen
	On      bool          `json:"on,omitempty"`         // of a surrounding
	Target  int64         `json:"target,omitempty"`     // of release-one and cancel: the order that began it

	Workload *Workload    `json:"workload,omitempty"`
	Cycles   *load.Cycles `json:"cycles,omitempty"`
}

// note is one line from it: the answer to an order, or what it tells by itself.
type note struct {
	ID       int64             `json:"id,omitempty"`   // of the order that it answers
	From     int64             `json:"from,omitempty"` // just before and just after what was ordered
	To       int64             `json:"to,omitempty"`
	Token    uint64            `json:"token,omitempty"`
	Attempts []results.Attempt `json:"attempts,omitempty"`
	Use      *Use              `json:"use,omitempty"`
	Failed   string            `json:"failed,omitempty"` // why what was ordered did

	Lease  *results.Hold  `json:"lease,omitempty"` // new, renewed, or with an end
	Write  *results.Write `json:"write,omitempty"`
	Halt   *results.Halt  `json:"halt,omitempty"`
	Call   *results.Call  `json:"call,omitempty"`
	Plugin int            `json:"plugin,omitempty"` // process id of its plugin
	Asking *bool          `json:"asking,omitempty"` // whether a caller asks for anything
	Idle   bool           `json:"idle,omitempty"`   // a release is through
}

// fail notes the error of what was ordered.
func (n *note) fail(err error) {
	if err != nil {
		n.Failed = err.Error()
	}
}

// err is the error of what was ordered, which is that of ctx when that has ended.
func (n note) err(ctx context.Context) error {
	switch {
	case n.Failed == "":
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", n.Failed, ctx.Err())
	}
	return errors.New(n.Failed)
}

// Process is a host. Its methods may be called from any goroutine.
type Process struct {
	*proc.Child

	mu      sync.Mutex
	last    int64               // order that was asked
	pending map[int64]chan note // answers that are waited for
	change  chan struct{}       // closed and replaced at each note that is no answer
	seen    results.Seen
	plugin  int // process id; 0 for a library
	asking  bool
	// releaseNs is when the last release that was told of began.
	releaseNs int64
	idle      int
	follow    func(*results.Hold, *results.Call)
}

// Start starts a host and returns when its plugin is open.
func Start(ctx context.Context, s Spec) (*Process, error) {
	p := &Process{
		Child:   &proc.Child{Role: role, Program: s.Program},
		pending: map[int64]chan note{}, change: make(chan struct{}),
	}
	if s.TempDir != "" {
		p.Env = []string{"TMPDIR=" + s.TempDir}
	}
	if err := proc.Start(ctx, p.Child, s, p.take); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	return p, nil
}

// take passes an answer on, and keeps everything else.
func (p *Process) take(n note) {
	p.mu.Lock()
	if n.ID != 0 {
		answer := p.pending[n.ID]
		delete(p.pending, n.ID)
		p.mu.Unlock()
		if answer != nil {
			answer <- n
		}
		return
	}
	p.see(n)
	close(p.change)
	p.change = make(chan struct{})
	follow := p.follow
	p.mu.Unlock()
	if follow != nil && (n.Lease != nil || n.Call != nil) {
		follow(n.Lease, n.Call)
	}
}

// ask sends one order and waits for its answer. The end of ctx is passed on, and
// the answer waited for: a lock may have been granted meanwhile.
func (p *Process) ask(ctx context.Context, o order) (note, error) {
	answer := make(chan note, 1)
	p.mu.Lock()
	p.last++
	o.ID = p.last
	p.pending[o.ID] = answer
	p.mu.Unlock()
	if p.Send(o) != nil {
		return note{}, proc.ErrEnded
	}
	stop := context.AfterFunc(ctx, func() {
		_ = p.Send(order{Op: opCancel, Target: o.ID}) // fails when all has ended
	})
	defer stop()
	select {
	case n := <-answer:
		return n, n.err(ctx)
	case <-p.Ended():
	}
	select {
	case n := <-answer: // its last line
		return n, n.err(ctx)
	default:
		return note{}, proc.ErrEnded
	}
}
