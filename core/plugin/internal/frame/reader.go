package frame

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"time"
)

// role says which goroutine reads the replies. The caller of a single call reads its own
// reply, so that the reply wakes one goroutine and not two, perhaps on two processors.
// As soon as there are other calls, the background reader, a goroutine of the link,
// reads until no call is under way. While no call is under way, no goroutine reads.
type role struct {
	taken       bool
	call        uint64 // id of the call whose caller reads; 0 if the background reader reads
	interrupted bool   // the ctx of that caller has ended, and the connection has a read deadline
}

// assign gives the role to a goroutine, if none has it, after c was entered. It returns
// true if the caller of c gets the role. The caller of assign must hold out.mu.
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

// readFor reads until c is answered or ctx ends. readFor then gives the role to the background
// reader, or to no goroutine.
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
		under-- // call will give c up in a moment
	}
	l.role = role{taken: under > 0}
	if under > 0 {
		l.wake <- struct{}{}
	}
}

// afterFunc is context.AfterFunc for the goroutine that has the role of the reader, which must not
// block because others wait for it. context.AfterFunc first calls ctx.Value. For a call from core,
// that method asks the caller's context, which may be a type of the application and block.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if own, ok := ctx.(interface {
		AfterFunc(f func()) (stop func() bool)
	}); ok {
		return own.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// interrupt ends the reading by the caller of the call with that id.
func (l *Link) interrupt(id uint64) {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if l.role.call == id {
		l.role.interrupted = true
		_ = l.conn.SetReadDeadline(time.Unix(1, 0)) // fails only when closed
	}
}

// readInBackground is the goroutine of the background reader.
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

// rest gives up the role if no call is under way, and reports whether it did.
func (l *Link) rest() bool {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if l.under.all > 0 {
		return false
	}
	l.role.taken = false
	return true
}

// reply is a call and the bytes of its answer, which are still in the inbox.
type reply struct {
	call *call
	body []byte
}

// read waits for replies and passes each to its call. answered says if c got a reply.
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

// take appends the replies that have been read to ready. It drops replies
// to calls that were given up.
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
