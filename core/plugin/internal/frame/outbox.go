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

// outbox collects frames and writes them, as many at once as there are. There
// is no writer to be woken: the goroutine that queues a frame while nobody
// writes is the writer until the queue is empty. It never waits for the peer;
// what a full socket does not take is left to a goroutine of the outbox.
type outbox struct {
	end writeEnd
	raw syscall.RawConn
	// failed is called once, without mu, when a write has failed.
	failed func(error)

	mu    sync.Mutex // guards what follows, and what its owner says
	buf   []byte     // queued frames
	spare []byte
	busy  bool   // there is a writer
	taken uint64 // bytes that have left buf
	// room is closed when the queue has become short; nil while nobody waits.
	room    chan struct{}
	stopped bool

	// Of the writer alone.
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

// maxQueued is how many bytes may be queued before those who have more wait.
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

// position is that in the stream of the next frame to be queued.
func (o *outbox) position() uint64 { return o.taken + uint64(len(o.buf)) }

// full reports that there is no room, and returns what to wait for. The caller
// holds mu.
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

// freed wakes who waits for room. The caller holds mu.
func (o *outbox) freed() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// flush writes until the queue is empty. With yield, it first lets those run
// who are about to queue something, once for each write.
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

// startDrain leaves the rest of b to a goroutine: the writer's own request must
// not wait longer than its ctx.
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

// take returns what is queued, or nil when nothing is and the writer ends.
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
