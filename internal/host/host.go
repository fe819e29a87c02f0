// Package host runs hosts as operating system processes: each wants or holds
// locks through a plugin, or a library, of its own, and can be killed or frozen
// from outside. It runs callers, which put load on a store, or campaigns.
//
// A process is the running binary started again, whose main (or TestMain) must
// call [Main] first.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/record"
)

// role makes a binary that calls Main a host.
const role = "LOCKBENCH_HOST"

// Main makes this process a host and ends it, when it was started as one;
// otherwise it does nothing. Call it first in main or TestMain.
func Main() { proc.Become(role, "host", openAgent) }

// Spec says through what a host takes its locks.
type Spec struct {
	Backend string
	Path    string // of the plugin binary
	Config  driver.Config
	NoMTLS  bool
	// Baseline names a library that is used instead of the plugin, "" for none.
	Baseline string
}

// start is what a host is started with. Its clock is that of the run, so that
// nobody converts its times.
type start struct {
	Spec
	Zero int64 // of that clock, on the machine's
}

// Process is a host. Its methods may be called from any goroutine.
type Process struct {
	*proc.Child

	mu      sync.Mutex
	plugin  int // process id; 0 for a baseline
	last    int64
	pending map[int64]chan line // answers that are waited for
	on      func(Term)
}

// order is one line to the process.
type order struct {
	ID       int64        `json:"id"`
	Op       string       `json:"op"`
	Lock     *lockSpec    `json:"lock,omitempty"`
	Target   int64        `json:"target,omitempty"` // of release and cancel: the order that began it
	Cycles   *load.Cycles `json:"cycles,omitempty"`
	Campaign *Campaign    `json:"campaign,omitempty"`
}

// line is one line from it: the answer to an order, or the state of a term.
type line struct {
	ID      int64          `json:"id,omitempty"`
	From    int64          `json:"from,omitempty"` // just before and just after
	To      int64          `json:"to,omitempty"`
	Token   uint64         `json:"token,omitempty"`
	Outcome record.Outcome `json:"outcome,omitempty"`
	Failure string         `json:"failure,omitempty"`

	Attempts []record.Attempt `json:"attempts,omitempty"`
	Term     *Term            `json:"term,omitempty"`
	Plugin   int              `json:"plugin,omitempty"` // process id
}

// fail notes the error of what was ordered.
func (l *line) fail(err error) {
	if err != nil {
		l.Failure = err.Error()
	}
}

// err is the error of what was ordered.
func (l line) err() error {
	switch {
	case l.Failure == "":
		return nil
	case l.Outcome == record.Cancelled:
		return fmt.Errorf("%s: %w", l.Failure, context.Canceled)
	case l.Outcome == record.Refused:
		return fmt.Errorf("%s: %w", l.Failure, driver.ErrHeld)
	}
	return errors.New(l.Failure)
}

// Start starts a host, and returns when its plugin is open. The times that it
// tells are on clock.
func Start(ctx context.Context, s Spec, clock load.Clock) (*Process, error) {
	p := &Process{Child: &proc.Child{Role: role}, pending: map[int64]chan line{}}
	if err := proc.Start(ctx, p.Child, start{s, proc.MachineClock().Of(clock.Started())}, p.take); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	return p, nil
}

// take passes one line on.
func (p *Process) take(l line) {
	p.mu.Lock()
	answer, on := p.pending[l.ID], p.on
	delete(p.pending, l.ID)
	if l.Plugin != 0 {
		p.plugin = l.Plugin
	}
	p.mu.Unlock()
	switch {
	case l.Term != nil:
		on(*l.Term)
	case answer != nil:
		answer <- l
	}
}

// ask sends one order and waits for its answer. The end of ctx is passed on, and
// the answer waited for: a lock may have been granted meanwhile.
func (p *Process) ask(ctx context.Context, o order) (line, error) {
	answer := make(chan line, 1)
	p.mu.Lock()
	p.last++
	o.ID = p.last
	p.pending[o.ID] = answer
	p.mu.Unlock()
	if p.Send(o) != nil {
		return line{}, proc.ErrEnded
	}
	stop := context.AfterFunc(ctx, func() {
		_ = p.Send(order{Op: opCancel, Target: o.ID}) // fails when all has ended
	})
	defer stop()
	select {
	case l := <-answer:
		return l, l.err()
	case <-p.Ended():
	}
	select {
	case l := <-answer: // its last line
		return l, l.err()
	default:
		return line{}, proc.ErrEnded
	}
}

// KillMachine ends the host and its plugin as the loss of a machine does:
// both are stopped before either is killed, so that neither sees the other
// end.
func (p *Process) KillMachine() error {
	err := p.Freeze()
	p.mu.Lock()
	plugin := p.plugin
	p.mu.Unlock()
	if plugin > 0 {
		err = errors.Join(err, inject.Freeze(plugin), inject.Kill(plugin))
	}
	return errors.Join(err, p.Kill(), p.sweep())
}

// sweep removes the plugin's directory, which its host or the plugin itself
// does as long as one of them lives.
func (p *Process) sweep() error {
	var errs []error
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		dirs, err := filepath.Glob(filepath.Join(parent, fmt.Sprintf("lockplugin-%d-*", p.Pid())))
		errs = append(errs, err)
		for _, dir := range dirs {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}
