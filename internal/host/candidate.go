package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
)

// Campaign is what a candidate wants.
type Campaign struct {
	Spec
	// Baseline names a library that is used instead of the plugin, "" for none.
	Baseline string
	// Names are the locks: whoever holds one is its leader.
	Names []string
	TTL   time.Duration
	// Tick is how often a candidate asks; 0: it waits until it is woken.
	Tick time.Duration
}

// Report is what a candidate reports. Times are those of the clock that its
// controller named, in nanoseconds; they are 0 where they do not belong.
type Report struct {
	Kind  Kind   `json:"kind"`
	Name  int32  `json:"name"` // index into Campaign.Names
	Token uint64 `json:"token,omitempty"`
	// Asked is when the acquire, renewal or release was sent that led to this.
	Asked int64 `json:"asked,omitempty"`
	// At is when it happened.
	At int64 `json:"at,omitempty"`
	// FreeFrom and FreeBy bound the time at which the store lets the lease
	// expire, unless it is renewed: Granted and Renewed, where that is known.
	FreeFrom int64 `json:"free_from,omitempty"`
	FreeBy   int64 `json:"free_by,omitempty"`
	// Wrote is when it last acted as a leader: Lost.
	Wrote int64  `json:"wrote,omitempty"`
	Cause string `json:"cause,omitempty"` // of Lost and Failed
	Pid   int    `json:"pid,omitempty"`   // of the plugin: Ready
}

// Kind says what a [Report] is about.
type Kind string

// The kinds of reports.
const (
	Ready    Kind = "ready"    // it is about to campaign
	Granted  Kind = "granted"  // it leads
	Renewed  Kind = "renewed"  // its lease was renewed
	Lost     Kind = "lost"     // it has noticed that it leads no longer
	Resigned Kind = "resigned" // it has released; Cause is why that could not be confirmed
	Failed   Kind = "failed"   // an acquire came back with an error; it goes on
)

// Candidate is a host process that campaigns for locks, works while it leads,
// and campaigns again after every term. Its methods may be called from any
// goroutine.
type Candidate struct {
	*proc.Child
	plugin int // process id; 0 for a baseline
	offset int64
}

// StartCandidate starts a candidate and returns when it campaigns. Its reports
// go to on, one at a time and until the process ends, with times on clock.
func StartCandidate(ctx context.Context, c Campaign, clock load.Clock, on func(*Candidate, Report)) (*Candidate, error) {
	p := &Candidate{Child: &proc.Child{Role: roleCandidate}, offset: -proc.MachineClock().Of(clock.Started())}
	var first Report
	err := proc.Start(ctx, p.Child, c, func(r Report) bool {
		if first.Kind == "" {
			first = r
		} else {
			on(p, p.timed(r))
		}
		return true
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("host: candidate: %w", err)
	case first.Kind != Ready:
		return nil, errors.Join(fmt.Errorf("host: candidate: it did not start: %s", first.Cause), p.Close(ctx))
	}
	p.plugin = first.Pid
	return p, nil
}

// timed is r with times on the clock of the run.
func (p *Candidate) timed(r Report) Report {
	for _, t := range []*int64{&r.Asked, &r.At, &r.FreeFrom, &r.FreeBy, &r.Wrote} {
		if *t != 0 {
			*t += p.offset
		}
	}
	return r
}

// Resign lets it release what it leads; it campaigns again after a moment.
func (p *Candidate) Resign() error { return p.Send(resign) }

// Kill ends the host with SIGKILL and returns when it is gone and what it had
// reported was passed on. Its plugin is not touched. It is no error that the
// host has ended before.
func (p *Candidate) Kill() error {
	err := p.Child.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// KillMachine ends the host and its plugin as the loss of a machine does:
// both are stopped before either is killed, so that neither sees the other
// end.
func (p *Candidate) KillMachine() error {
	err := p.Freeze()
	if p.plugin > 0 {
		err = errors.Join(err, fault.Freeze(p.plugin), fault.Kill(p.plugin))
	}
	return errors.Join(err, p.Kill(), p.sweep())
}

// sweep removes the plugin's directory, which its host or the plugin itself
// does as long as one of them lives.
func (p *Candidate) sweep() error {
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
