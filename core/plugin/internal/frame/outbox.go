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

// outbox queues frames and writes all queued frames at once. If a goroutine queues a frame while no
// other goroutine writes, it becomes the writer until the queue is empty. The writer never waits
// for the peer. If the socket is full, the outbox starts a goroutine that writes the rest.
type outbox struct {
	end writeEnd
	raw syscall.RawConn
	// The outbox calls failed once, when it stops. It does not hold mu during that call.
	failed func(error)

	mu    sync.Mutex // guards the fields below, and fields of Link and session under "Guarded by"
	buf   []byte     // queued frames
	spare []byte
	busy  bool   // a goroutine is the writer now
	taken uint64 // number of bytes that the writer has taken from buf
	// room is closed when the queue has space again. It is nil if no goroutine waits for space.
	room    chan struct{}
	stopped bool

	// Only the writer uses these fields.
	piece   []byte
	n       int
	err     error
	attempt func(fd uintptr) bool // writes piece[n:] as far as possible without waiting
	drains  sync.WaitGroup
}

// writeEnd is a connection to which this process only writes. If the socket is full, Write waits
// until the peer has read, and Close ends that wait.
type writeEnd interface {
	io.WriteCloser
	syscall.Conn
}

// While maxQueued bytes or more are queued, goroutines with new frames must wait.
const maxQueued = 1 << 20

// init prepares the outbox, which then owns conn.
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

// queue adds a frame to the queued frames. Its caller must hold mu. If queue returns true, the
// caller must unlock mu and call flush.
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

// position returns the number of bytes ever queued. The next frame starts at this position.
func (o *outbox) position() uint64 { return o.taken + uint64(len(o.buf)) }

// full returns nil if the queue has room. Otherwise it returns the channel from the wait method.
// The caller must hold mu.
func (o *outbox) full() <-chan struct{} {
	if len(o.buf) < maxQueued || o.stopped {
		return nil
	}
	return o.wait()
}

// wait returns a channel that is closed when the outbox's owner or the writer
// has made room. The caller must hold mu.
func (o *outbox) wait() <-chan struct{} {
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// freed ends the wait of all goroutines that wait for room. The caller must hold mu.
func (o *outbox) freed() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// flush writes until the queue is empty. If yield is true, it lets other
// goroutines run before each write, because some may be about to queue frames.
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

// startDrain starts a goroutine that writes the rest of b. The writer does not wait for that
// goroutine, because the writer's call must return when its ctx ends.
func (o *outbox) startDrain(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.stopped {
		o.drains.Go(func() { o.drain(b) })
	}
}

// drain writes the rest of b and all queued frames, and waits for the peer if necessary.
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

// take removes and returns the queued frames. If there are none, it returns nil, and the caller is
// no longer the writer.
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

// stop ends the outbox. Frames that are still queued are never written.
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
