// Package recorder runs hosts as operating system processes that hold many
// locks at once and write down what they believed and when: grants, renewals,
// the last moment at which a lease called itself valid, its loss, its release,
// and writes to guarded resources; or that have callers, whose calls they write
// down too (see [Workload]). They can be killed and frozen from outside.
//
// A process is the running binary started again, whose main (or TestMain) must
// call [Main] first. What it sees comes out of it at once, so that little is
// lost with one that is killed.
package recorder

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/record"
)

// role makes a binary that calls Main a recorder. Builds of other versions know
// it, too: Spec.Program may be one.
const role = "LOCKBENCH_RECORDER"

// Spec says through which plugin a recorder takes its locks, and to what it
// writes under them.
type Spec struct {
	Backend   string        `json:"backend"`
	Path      string        `json:"path"` // of the plugin binary
	Config    driver.Config `json:"config"`
	NoMTLS    bool          `json:"no_mtls,omitempty"`
	Host      int           `json:"host"` // its number in what it records
	Resources Resources     `json:"resources"`
	// TempDir is where the recorder and its plugin make their temporary files;
	// "" for the system's.
	TempDir string `json:"-"`
	// Program is the one to start; "" for this one. Its main must call [Main].
	Program string `json:"-"`
}

// order is one line on a recorder's standard input.
type order struct {
	Op      string        `json:"op"` // acquire, work, release, reopen, read, or a surrounding
	Names   []string      `json:"names,omitempty"`
	First   int           `json:"first,omitempty"` // number of Names[0] in the round; of the first lock to release
	TTL     time.Duration `json:"ttl_ns,omitempty"`
	Timeout time.Duration `json:"timeout_ns,omitempty"`

	Workload *Workload `json:"workload,omitempty"`
	On       bool      `json:"on,omitempty"` // of a surrounding
}

// note is one line on its standard output.
type note struct {
	Lease  *record.Lease `json:"lease,omitempty"` // new, or with an end
	Write  *record.Write `json:"write,omitempty"`
	Halt   *record.Halt  `json:"halt,omitempty"`
	Call   *Call         `json:"call,omitempty"`
	Failed string        `json:"failed,omitempty"` // an acquire; why
	Use    *Use          `json:"use,omitempty"`
	Plugin int           `json:"plugin,omitempty"` // process id of its plugin
	Asking *bool         `json:"asking,omitempty"` // whether a caller asks for anything
	Idle   bool          `json:"idle,omitempty"`   // a release is through
}

// Process is a recorder. Its methods may be called from any goroutine.
type Process struct {
	*proc.Child

	mu     sync.Mutex
	change chan struct{} // closed and replaced at each note
	seen   Seen
	index  map[grant]int // of seen.Leases
	uses   []Use
	plugin int
	asking bool
	// releaseNs is when the last release that was told of began.
	releaseNs int64
	idle      int
}

// Seen is what a recorder has told.
type Seen struct {
	Leases []record.Lease
	Writes []record.Write
	Halts  []record.Halt
	Calls  []Call
	// Failed are the errors of acquires.
	Failed []string
}

// Held counts the leases without an end.
func (s Seen) Held() int {
	n := 0
	for _, l := range s.Leases {
		if held(l) {
			n++
		}
	}
	return n
}

// held reports whether a lease has no end.
func held(l record.Lease) bool { return l.DoneNs == 0 && l.ReleaseNs == 0 }

// Start starts a recorder and returns when its plugin is open.
func Start(ctx context.Context, s Spec) (*Process, error) {
	p := &Process{Child: &proc.Child{Role: role, Program: s.Program}, change: make(chan struct{}), index: map[grant]int{}}
	if s.TempDir != "" {
		p.Env = []string{"TMPDIR=" + s.TempDir}
	}
	if err := proc.Start(ctx, p.Child, s, p.take); err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	return p, nil
}

func (p *Process) take(n note) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case n.Lease != nil:
		p.lease(*n.Lease)
	case n.Write != nil:
		p.seen.Writes = append(p.seen.Writes, *n.Write)
	case n.Halt != nil:
		p.seen.Halts = append(p.seen.Halts, *n.Halt)
	case n.Call != nil:
		p.seen.Calls = append(p.seen.Calls, *n.Call)
	case n.Failed != "":
		p.seen.Failed = append(p.seen.Failed, n.Failed)
	case n.Use != nil:
		p.uses = append(p.uses, *n.Use)
	case n.Plugin != 0:
		p.plugin = n.Plugin
	case n.Asking != nil:
		p.asking = *n.Asking
	case n.Idle:
		p.idle++
	}
	close(p.change)
	p.change = make(chan struct{})
}

// lease keeps the newest state of each.
func (p *Process) lease(l record.Lease) {
	if l.ReleasedNs == 0 {
		p.releaseNs = max(p.releaseNs, l.ReleaseNs)
	}
	key := grant{l.Name, l.Token}
	if i, known := p.index[key]; known && p.seen.Leases[i].GrantedNs == l.GrantedNs {
		p.seen.Leases[i] = l
		return
	}
	p.index[key] = len(p.seen.Leases)
	p.seen.Leases = append(p.seen.Leases, l)
}

// grant tells leases apart in what one process has told.
type grant struct {
	name  int
	token uint64
}

// Await returns when until says so of what was seen, and fails when ctx or
// the process ends before.
func (p *Process) Await(ctx context.Context, until func(Seen) bool) error {
	for over := false; ; {
		p.mu.Lock()
		done, change := until(p.seen), p.change
		p.mu.Unlock()
		switch {
		case done:
			return nil
		case over:
			return fmt.Errorf("recorder: %w", proc.ErrEnded)
		}
		select {
		case <-change:
		case <-p.Ended():
			over = true // there is no change after the last look
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Seen returns what was seen since the last call of Forget.
func (p *Process) Seen() Seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.seen
	s.Leases = append([]record.Lease(nil), s.Leases...)
	s.Calls = append([]Call(nil), s.Calls...)
	return s
}

// Forget begins anew with the leases that have no end: a round is over.
func (p *Process) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.seen.Leases
	p.seen, p.index = Seen{}, map[grant]int{}
	for _, l := range before {
		if held(l) {
			p.lease(l)
		}
	}
}

// PluginPid is the process id of its plugin when it was last started.
func (p *Process) PluginPid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plugin
}

// Asking reports whether a caller of a workload asks for a lock, and when the
// last release of one began, by [proc.Now].
func (p *Process) Asking() (asking bool, releaseNs int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asking, p.releaseNs
}

// Acquire lets the recorder wait for each of the names, up to timeout, and hold
// what it gets until it loses it or is told to release. It returns at once.
func (p *Process) Acquire(names []string, first int, ttl, timeout time.Duration) error {
	return p.Send(order{Op: "acquire", Names: names, First: first, TTL: ttl, Timeout: timeout})
}

// Release ends waiting and holding, and returns when every release has come
// back.
func (p *Process) Release(ctx context.Context) error { return p.ReleaseFrom(ctx, 0) }

// ReleaseFrom does the same for the calls of Acquire whose first number was
// first or a higher one.
func (p *Process) ReleaseFrom(ctx context.Context, first int) error {
	p.mu.Lock()
	before := p.idle
	p.mu.Unlock()
	if err := p.Send(order{Op: "release", First: first}); err != nil {
		return err
	}
	return p.Await(ctx, func(Seen) bool { return p.idle > before })
}
