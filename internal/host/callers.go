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
	"github.com/lockbench/lockbench/internal/record"
)

// Callers is a host process that does what callers here tell it: it is a
// [load.Locker] whose locks are taken there, through a plugin of its own. The
// times of its leases are taken there too, so that the way here and back does
// not count. Or it lets callers of its own cycle, see [Callers.Cycle].
type Callers struct {
	*proc.Child
	offset int64 // of the machine's clock to the run's

	mu      sync.Mutex
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
	h := &Callers{
		Child: &proc.Child{Role: roleCallers}, offset: -proc.MachineClock().Of(clock.Started()), pending: map[int64]chan callReply{},
	}
	ready := make(chan callReply, 1)
	h.pending[0] = ready
	err := proc.Start(ctx, h.Child, s, h.answer)
	if err != nil {
		return nil, fmt.Errorf("host: callers: %w", err)
	}
	if r := <-ready; r.Error != "" {
		return nil, errors.Join(fmt.Errorf("host: callers did not start: %s", r.Error), h.Close(ctx))
	}
	go h.end()
	return h, nil
}

// answer hands one reply out.
func (h *Callers) answer(r callReply) bool {
	h.mu.Lock()
	answer := h.pending[r.ID]
	delete(h.pending, r.ID)
	h.mu.Unlock()
	if answer != nil {
		answer <- r
	}
	return true
}

// end waits for the end of the process, and ends what waits for a reply.
func (h *Callers) end() {
	<-h.Ended()
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, answer := range h.pending {
		close(answer)
		delete(h.pending, id)
	}
}

// ask sends one call and waits for its reply. The end of ctx is passed on, and
// the reply waited for: a lock may have been granted meanwhile.
func (h *Callers) ask(ctx context.Context, c call) (callReply, error) {
	answer := make(chan callReply, 1)
	id, err := h.send(c, answer)
	if err != nil {
		return callReply{}, err
	}
	stop := context.AfterFunc(ctx, func() {
		_, _ = h.send(call{Op: opCancel, Target: id}, nil) // fails when all has ended
	})
	defer stop()
	r, ok := <-answer
	if !ok {
		return r, proc.ErrEnded
	}
	return r, nil
}

// send writes one call, whose reply will come to answer, if to anything.
func (h *Callers) send(c call, answer chan callReply) (id int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.Ended():
		return 0, proc.ErrEnded
	default:
	}
	h.last++
	c.ID = h.last
	if answer != nil {
		h.pending[c.ID] = answer
	}
	return c.ID, h.Send(c)
}

// Lock implements [load.Locker].
func (h *Callers) Lock(name string, ttl time.Duration) (load.Lock, error) {
	return &calledLock{h, name, ttl}, nil
}

type calledLock struct {
	h    *Callers
	name string
	ttl  time.Duration
}

// Acquire implements [load.Lock].
func (l *calledLock) Acquire(ctx context.Context) (load.Lease, error) {
	r, err := l.h.ask(ctx, call{Op: opAcquire, Name: l.name, TTLNs: int64(l.ttl)})
	switch {
	case err != nil:
		return nil, err
	case r.Outcome == record.Granted:
		return &calledLease{h: l.h, grant: r}, nil
	case r.Outcome == record.Cancelled:
		return nil, fmt.Errorf("%s: %w", r.Error, context.Canceled)
	case r.Outcome == record.Refused:
		return nil, fmt.Errorf("%s: %w", r.Error, driver.ErrHeld)
	}
	return nil, errors.New(r.Error)
}

type calledLease struct {
	h              *Callers
	grant, release callReply
}

func (l *calledLease) Token() uint64 { return l.grant.Token }

// Renew is not among what these processes do.
func (l *calledLease) Renew(context.Context) error { return errors.ErrUnsupported }

func (l *calledLease) Release(context.Context) error {
	r, err := l.h.ask(context.Background(), call{Op: opRelease, Target: l.grant.ID})
	switch {
	case err != nil:
		return err
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
