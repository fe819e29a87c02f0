package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench/fault"
	"github.com/lockbench/lockbench/bench/load"
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

// Report is what a candidate tells. Times are those of the clock that its
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
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	plugin int // process id; 0 for a baseline
	offset int64
	ended  chan struct{} // closed when it is gone and all was reported

	mu sync.Mutex // of stdin
}

// StartCandidate starts a candidate and returns when it campaigns. Its reports
// go to on, one at a time and until the process ends, with times on clock.
func StartCandidate(ctx context.Context, c Campaign, clock load.Clock, on func(*Candidate, Report)) (*Candidate, error) {
	machine := newClock()
	p := &Candidate{ended: make(chan struct{}), offset: -machine.of(clock.Started())}
	out, err := p.start()
	if err != nil {
		return nil, fmt.Errorf("host: candidate: %w", err)
	}
	ready := make(chan Report, 1)
	go p.read(out, ready, on)
	if err := p.send(c); err != nil {
		return nil, errors.Join(fmt.Errorf("host: candidate: %w", err), p.Kill())
	}
	select {
	case r, ok := <-ready:
		if ok && r.Kind == Ready {
			p.plugin = r.Pid
			return p, nil
		}
		<-p.ended
		return nil, fmt.Errorf("host: candidate: it did not start: %s", r.Cause)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.Kill())
	}
}

func (p *Candidate) start() (out io.ReadCloser, err error) {
	p.cmd, p.stdin, out, err = startSelf(envCandidate)
	return out, err
}

// startSelf starts this binary again, as what the variable says.
func startSelf(variable string) (*exec.Cmd, io.WriteCloser, io.ReadCloser, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.Stderr = os.Stderr
	// A group of its own in our session: signals to our terminal are not for it,
	// and when we die while it is frozen the kernel wakes and ends it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, out, cmd.Start()
}

// read passes reports on until the process ends.
func (p *Candidate) read(out io.Reader, ready chan<- Report, on func(*Candidate, Report)) {
	defer close(p.ended)
	in := json.NewDecoder(out)
	var first Report
	if in.Decode(&first) == nil {
		ready <- first
	}
	close(ready)
	for {
		var r Report
		if in.Decode(&r) != nil {
			_ = p.cmd.Wait() // how it ended is of no interest
			return
		}
		for _, t := range []*int64{&r.Asked, &r.At, &r.FreeFrom, &r.FreeBy, &r.Wrote} {
			if *t != 0 {
				*t += p.offset
			}
		}
		on(p, r)
	}
}

func (p *Candidate) send(message any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return json.NewEncoder(p.stdin).Encode(message)
}

// Resign lets it release what it leads; it campaigns again after a moment.
func (p *Candidate) Resign() error { return p.send(resign) }

// Freeze stops the host process and returns when it has stopped. Its plugin
// goes on.
func (p *Candidate) Freeze() error { return fault.Freeze(p.cmd.Process.Pid) }

// Resume lets a frozen host go on.
func (p *Candidate) Resume() error { return fault.Resume(p.cmd.Process.Pid) }

// Kill ends the host with SIGKILL and returns when it is gone and what it had
// reported was passed on. Its plugin is not touched.
func (p *Candidate) Kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended
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
		dirs, err := filepath.Glob(filepath.Join(parent, fmt.Sprintf("lockplugin-%d-*", p.cmd.Process.Pid)))
		errs = append(errs, err)
		for _, dir := range dirs {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// Close lets it release what it leads and end; it is killed when it has not
// ended before ctx does.
func (p *Candidate) Close(ctx context.Context) error {
	p.mu.Lock()
	p.stdin.Close()
	p.mu.Unlock()
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.Resume(), p.Kill())
	}
}
