package frame

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"

	"github.com/lockbench/lockbench/internal/rawio"
)

// outbox collects frames and writes as many at once as there are. No separate
// writer has to be woken: a goroutine that queues a frame while no other
// writes is the writer until the queue is empty. The writer never waits for
// the peer. If a socket is full, a goroutine of the outbox writes the rest.
type outbox struct {
	end writeEnd
	raw syscall.RawConn
	// failed is called once, without mu, when a write has failed.
	failed func(error)

	mu    sync.Mutex // guards the fields below, and those that the owner says
	buf   []byte     // queued frames
	spare []byte
	busy  bool   // there is a writer
	taken uint64 // bytes that have left buf
	// room is closed when the queue has become short; nil while no goroutine waits.
	room    chan struct{}
	stopped bool

	// These fields belong to the writer alone.
	piece   []byte
	n       int
	err     error
	attempt func(fd uintptr) bool // writes piece, without waiting
	drains  sync.WaitGroup
}

// writeEnd is a connection that is only written to. Its Write waits for the
// peer, and Close ends that.
type writeEnd interface {
	io.WriteCloser
	syscall.Conn
}

// maxQueued is how many bytes may be queued before goroutines with more must wait.
const maxQueued = 1 << 20

// init takes conn over.
func (o *outbox) init(conn *net.UnixConn, failed func(error)) error {
	end, err := newWriteEnd(conn)
	if err != nil {
		return err
	}
	raw, err := end.SyscallConn()
	if err != nil {
		end.Close()
		return err
	}
	o.end, o.raw, o.failed = end, raw, failed
	o.attempt = func(fd uintptr) bool {
		for o.n < len(o.piece) {
			n, err := rawio.Write(fd, o.piece[o.n:])
			switch {
			case err == syscall.EAGAIN:
				return true
			case err != nil:
				o.err = err
				return true
			}
			o.n += n
		}
		return true
	}
	return nil
}

// queue appends a frame. The caller holds mu, and calls flush without it if
// this returns true.
func (o *outbox) queue(appendPayload func(b []byte) []byte) (write bool) {
	if o.stopped {
		return false
	}
	head := len(o.buf)
	o.buf = appendPayload(append(o.buf, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(o.buf[head:], uint32(len(o.buf)-head-headSize))
	write = !o.busy
	o.busy = true
	return write
}

// position returns the place in the stream of the next frame to be queued.
func (o *outbox) position() uint64 { return o.taken + uint64(len(o.buf)) }

// full returns a channel to wait for when there is no room, and nil
// otherwise. The caller holds mu.
func (o *outbox) full() <-chan struct{} {
	if len(o.buf) < maxQueued || o.stopped {
		return nil
	}
	return o.wait()
}

// wait returns a channel that is closed when the owner or the writer has made
// room. The caller holds mu.
func (o *outbox) wait() <-chan struct{} {
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// freed wakes the goroutines that wait for room. The caller holds mu.
func (o *outbox) freed() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// flush writes until the queue is empty. With yield, it first lets other
// goroutines run that are about to queue frames, once for each write.
func (o *outbox) flush(yield bool) {
	for {
		if yield {
			runtime.Gosched()
		}
		b := o.take()
		if b == nil {
			return
		}
		o.piece, o.n = b, 0
		if err := o.raw.Write(o.attempt); err != nil && o.err == nil {
			o.err = err
		}
		switch {
		case o.err != nil:
			o.stop(o.err)
			return
		case o.n < len(b):
			o.startDrain(b)
			return
		}
		o.recycle(b)
	}
}

// startDrain leaves the rest of b to a goroutine, because the writer's own
// request must not wait longer than its ctx.
func (o *outbox) startDrain(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.stopped {
		o.drains.Go(func() { o.drain(b) })
	}
}

// drain writes the rest of b and whatever is queued, waiting for the peer.
func (o *outbox) drain(b []byte) {
	rest := b[o.n:]
	for b != nil {
		if _, err := o.end.Write(rest); err != nil {
			o.stop(err)
			return
		}
		o.recycle(b)
		b = o.take()
		rest = b
	}
}

// take returns the queued frames, or nil when there are none and the writer ends.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.buf) == 0 || o.stopped {
		o.busy = false
		return nil
	}
	b := o.buf
	o.buf, o.spare = o.spare[:0], nil
	o.taken += uint64(len(b))
	o.freed()
	return b
}

func (o *outbox) recycle(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cap(b) <= keepSize {
		o.spare = b
	}
}

// stop ends the outbox: nothing is written any more. Frames that are queued
// stay unsent.
func (o *outbox) stop(cause error) {
	o.mu.Lock()
	first := !o.stopped
	o.stopped = true
	o.freed()
	o.mu.Unlock()
	if first {
		o.failed(cause)
	}
}
