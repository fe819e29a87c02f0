package frame

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"time"
)

// role says which goroutine reads the replies. If only one call is under way, its caller reads
// until the reply to that call comes, so that the reply wakes only one goroutine. If other calls
// are under way by then, the background reader takes over, and reads until no call is under way.
type role struct {
	taken       bool
	call        uint64 // id of the call whose caller reads; 0 if the background reader reads
	interrupted bool   // the ctx of that call has ended, and a read deadline is set
}

// assign finds a reader for the reply to the call c, if no goroutine reads
// yet. It returns true if its caller must read. The caller must hold out.mu.
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

// readFor reads until the call c is answered or ctx ends. If other calls are under way by then, the
// background reader takes over.
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
	if l.slots[id&slotMask] == c && c.kind != kindWait {
		under-- // c does not count, because it will soon be given up
	}
	l.role = role{taken: under > 0}
	if under > 0 {
		l.wake <- struct{}{}
	}
}

// afterFunc does the same as context.AfterFunc, but prefers the AfterFunc method of a ctx from
// package core. context.AfterFunc calls ctx.Value, which may block in a context of the application.
// The reader must not block, because other goroutines wait for it.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if own, ok := ctx.(interface {
		AfterFunc(f func()) (stop func() bool)
	}); ok {
		return own.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// interrupt ends the present read if the reader is the goroutine that made the call with that id.
func (l *Link) interrupt(id uint64) {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if l.role.call == id {
		l.role.interrupted = true
		_ = l.conn.SetReadDeadline(time.Unix(1, 0)) // fails only when closed
	}
}

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

func (l *Link) rest() bool {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if l.under.all > 0 {
		return false
	}
	l.role.taken = false
	return true
}

// reply is a call and its encoded answer. The bytes of the answer are still in the inbox.
type reply struct {
	call *call
	body []byte
}

// read waits for replies and passes each to its call. It reports whether c got its reply.
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

// take appends the received replies to ready. It drops replies to calls that were given up.
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
