package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/load"
	"github.com/lockbench/lockbench/bench/record"
	"github.com/lockbench/lockbench/core/driver"
)

// Callers is a host process that does what callers here tell it: it is a
// [load.Locker] whose locks are taken there, through a plugin of its own. The
// times of its leases are taken there too, so that the way here and back does
// not count. Or it lets callers of its own cycle, see [Callers.Cycle].
type Callers struct {
	cmd    *exec.Cmd
	offset int64         // of the machine's clock to the run's
	ended  chan struct{} // closed when the process is gone

	mu      sync.Mutex
	stdin   io.WriteCloser
	last    int64
	pending map[int64]chan callReply
}

// call is one line to the process.
type call struct {
	ID     int64        `json:"id"`
	Op     string       `json:"op"`
	Name   string       `json:"name,omitempty"`
	TTLNs  int64        `json:"ttl_ns,omitempty"`
	Target int64        `json:"target,omitempty"` // of release and cancel: the call that began it
	Cycles *load.Cycles `json:"cycles,omitempty"` // on the machine's clock
}

// callReply is one line from it, for the start and for each call but cancel.
type callReply struct {
	ID      int64          `json:"id"`
	From    int64          `json:"from"` // just before and just after
	To      int64          `json:"to"`
	Token   uint64         `json:"token,omitempty"`
	Outcome record.Outcome `json:"outcome"`
	Error   string         `json:"error,omitempty"`

	Attempts []record.Attempt `json:"attempts,omitempty"` // on the machine's clock
}

// StartCallers starts such a process, and returns when its plugin is open.
func StartCallers(ctx context.Context, s Spec, clock load.Clock) (*Callers, error) {
	machine := newClock()
	h := &Callers{offset: -machine.of(clock.Started()), ended: make(chan struct{}), pending: map[int64]chan callReply{}}
	var out io.ReadCloser
	var err error
	if h.cmd, h.stdin, out, err = startSelf(envCallers); err != nil {
		return nil, fmt.Errorf("host: callers: %w", err)
	}
	ready := make(chan callReply, 1)
	h.pending[0] = ready
	go h.read(out)
	if err := json.NewEncoder(h.stdin).Encode(s); err != nil {
		return nil, errors.Join(fmt.Errorf("host: callers: %w", err), h.kill())
	}
	select {
	case r, ok := <-ready:
		if !ok || r.Error != "" {
			return nil, errors.Join(fmt.Errorf("host: callers did not start: %s", r.Error), h.kill())
		}
		return h, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), h.kill())
	}
}

// read hands replies out until the process ends.
func (h *Callers) read(out io.Reader) {
	defer close(h.ended)
	for in := json.NewDecoder(out); ; {
		var r callReply
		if in.Decode(&r) != nil {
			break
		}
		h.mu.Lock()
		answer := h.pending[r.ID]
		delete(h.pending, r.ID)
		h.mu.Unlock()
		if answer != nil {
			answer <- r
		}
	}
	_ = h.cmd.Wait() // how it ended is of no interest
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, answer := range h.pending {
		close(answer)
		delete(h.pending, id)
	}
}

var errEnded = errors.New("the host process has ended")

// send writes one call, and returns where its reply will come.
func (h *Callers) send(c call) (int64, <-chan callReply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.ended:
		return 0, nil, errEnded
	default:
	}
	h.last++
	c.ID = h.last
	answer := make(chan callReply, 1)
	if c.Op != opCancel {
		h.pending[c.ID] = answer
	}
	return c.ID, answer, json.NewEncoder(h.stdin).Encode(c)
}

// Lock implements [load.Locker].
func (h *Callers) Lock(name string, ttl time.Duration) (load.Lock, error) {
	return &calledLock{h, name, ttl}, nil
}

// Close lets the process release what it holds and end; it is killed when it
// has not ended before ctx does.
func (h *Callers) Close(ctx context.Context) error {
	h.mu.Lock()
	h.stdin.Close()
	h.mu.Unlock()
	select {
	case <-h.ended:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), h.kill())
	}
}

func (h *Callers) kill() error {
	err := h.cmd.Process.Kill()
	<-h.ended
	return err
}

type calledLock struct {
	h    *Callers
	name string
	ttl  time.Duration
}

// Acquire implements [load.Lock]. The end of ctx is passed on, and the answer
// waited for: it may have been granted meanwhile.
func (l *calledLock) Acquire(ctx context.Context) (load.Lease, error) {
	id, answer, err := l.h.send(call{Op: opAcquire, Name: l.name, TTLNs: int64(l.ttl)})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		_, _, _ = l.h.send(call{Op: opCancel, Target: id}) // fails when all has ended
	})
	defer stop()
	r, ok := <-answer
	switch {
	case !ok:
		return nil, errEnded
	case r.Outcome == record.Granted:
		return &calledLease{h: l.h, id: id, grant: r}, nil
	case r.Outcome == record.Cancelled:
		return nil, fmt.Errorf("%s: %w", r.Error, context.Canceled)
	case r.Outcome == record.Refused:
		return nil, fmt.Errorf("%s: %w", r.Error, driver.ErrHeld)
	}
	return nil, errors.New(r.Error)
}

type calledLease struct {
	h              *Callers
	id             int64
	grant, release callReply
}

func (l *calledLease) Token() uint64 { return l.grant.Token }

// Renew is not among what these processes do.
func (l *calledLease) Renew(context.Context) error { return errors.ErrUnsupported }

func (l *calledLease) Release(context.Context) error {
	_, answer, err := l.h.send(call{Op: opRelease, Target: l.id})
	if err != nil {
		return err
	}
	r, ok := <-answer
	switch {
	case !ok:
		return errEnded
	case r.Error != "":
		return errors.New(r.Error)
	}
	l.release = r
	return nil
}

// Granted implements [load.Timed].
func (l *calledLease) Granted() (asked, answered int64) {
	return l.grant.From + l.h.offset, l.grant.To + l.h.offset
}

// Released implements [load.Timed].
func (l *calledLease) Released() (ended, done int64) {
	return l.release.From + l.h.offset, l.release.To + l.h.offset
}
