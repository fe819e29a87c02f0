package frame

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"time"
)

// role says which goroutine reads the replies. A caller that is alone reads its
// own reply: this wakes one goroutine instead of two, on what may be two
// processors. As soon as there are other calls the background reader, a goroutine
// of the link, reads until nothing is under way. In between no goroutine reads.
type role struct {
	taken       bool
	call        uint64 // id of the call whose caller reads; 0: the background reader does
	interrupted bool   // that caller's ctx has ended: the connection has a read deadline
}

// assign gives the role to a goroutine after c was entered. It returns true
// if that is c's caller. The caller of assign holds out.mu.
func (l *Link) assign(c *call) bool {
	if l.role.taken {
		return false
	}
	l.role.taken = true
	if l.under.all == 1 {
		l.role.call = c.id
		return true
	}
	l.wake <- struct{}{}
	return false
}

// readFor reads until c is answered or ctx ends, and passes the role on.
func (l *Link) readFor(ctx context.Context, c *call) {
	id := c.id
	stop := afterFunc(ctx, func() { l.interrupt(id) })
	for done := false; !done; {
		answered, err := l.read(c)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			l.out.stop(ended(err))
		}
		done = answered || err != nil
	}
	stop()
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if l.role.interrupted {
		_ = l.conn.SetReadDeadline(time.Time{}) // fails only when closed
	}
	under := l.under.all
	if l.slots[id&slotMask] == c && !c.kind.waits() {
		under-- // this call is given up in a moment
	}
	l.role = role{taken: under > 0}
	if under > 0 {
		l.wake <- struct{}{}
	}
}

// afterFunc is context.AfterFunc for the goroutine that has the role of the
// reader, while all others wait for it. context.AfterFunc first asks for a
// value of ctx. The values of a call come from its caller's context, which
// may be a type of the application, and block.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if own, ok := ctx.(interface {
		AfterFunc(f func()) (stop func() bool)
	}); ok {
		return own.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// interrupt ends the reading of the caller of call id.
func (l *Link) interrupt(id uint64) {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if l.role.call == id {
		l.role.interrupted = true
		_ = l.conn.SetReadDeadline(time.Unix(1, 0)) // fails only when closed
	}
}

// readInBackground is the background reader.
func (l *Link) readInBackground() {
	for {
		select {
		case <-l.wake:
		case <-l.closed:
			return
		}
		for resting := false; !resting; resting = l.rest() {
			if _, err := l.read(nil); err != nil {
				l.out.stop(ended(err))
				return
			}
		}
	}
}

// rest gives up the role when nothing is under way.
func (l *Link) rest() bool {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if l.under.all > 0 {
		return false
	}
	l.role.taken = false
	return true
}

// reply is a call with its answer still in the inbox.
type reply struct {
	call *call
	body []byte
}

// read waits for replies and hands them out. It reports whether one was c's.
func (l *Link) read(c *call) (answered bool, err error) {
	if err := l.in.fill(); err != nil {
		return false, err
	}
	l.ready, err = l.take(l.ready[:0])
	for i := range l.ready {
		r := &l.ready[i]
		if bad := readAnswer(r.body, r.call.kind, r.call.ops, &r.call.answer); bad != nil {
			r.call.answer = answer{err: noAnswer(bad)}
			err = bad
		}
		answered = answered || r.call == c
		r.call.done <- struct{}{}
	}
	clear(l.ready)
	return answered, err
}

// take matches the replies that were read with the calls. Answers to calls
// that were given up are dropped.
func (l *Link) take(ready []reply) ([]reply, error) {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	for {
		p, err := l.in.next()
		if p == nil {
			return ready, err
		}
		id, n := binary.Uvarint(p)
		if n <= 0 {
			return ready, errBroken
		}
		if c := l.leave(id); c != nil {
			ready = append(ready, reply{c, p[n:]})
		}
	}
}
