package frame

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/internal/rawio"
)

// maxUnderWay bounds the requests of one kind that a host may have under way. Each kind is counted
// separately, so that a renewal does not wait for thousands of acquires that wait for locked rows.
const maxUnderWay = 16 << 10

// The low slotBits bits of a call's id are the index of its slot in Link.slots. All kinds of
// requests together need fewer slots than these bits can count. The higher bits count calls.
// So the late reply to a call that was given up does not match a later call in the same slot.
const (
	slotBits = 18
	slotMask = 1<<slotBits - 1
)

// Link is the host's end of the data path. Rare operations, such as Check, use protocol version 1.
type Link struct {
	wire.Link
	conn   *net.UnixConn // the connection of the replies
	failed func(error)
	out    outbox
	in     *inbox  // used only by the goroutine that is the reader, see role
	ready  []reply // also used only by the reader

	background sync.WaitGroup
	wake       chan struct{} // makes the background reader read from now on
	closed     chan struct{}
	once       sync.Once

	// Guarded by out.mu.
	slots []*call // calls by slot number; nil for a free slot
	free  []int
	count uint64 // number of ids used so far
	under load   // requests under way
	lost  error  // why the connection has ended
	role  role
}

// grace bounds the wait for the answer to a Wait that the caller gave up. The answer may bring a
// grant. A withdrawal after the answer cannot overtake the Wait's requests to the store.
const grace = 50 * time.Millisecond

type call struct {
	id    uint64
	kind  kind
	ops   int    // number of operations of a batch
	start uint64 // position of the request in the stream of bytes, see outbox.position
	answer
	done chan struct{} // gets a value when answer is filled in
}

var callPool = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

func (c *call) recycle() {
	c.answer = answer{}
	callPool.Put(c)
}

var errLinkClosed = errors.New("the data connection was closed")

// Dial connects to the data socket at path. It returns [ErrPeer] unless the process with the id pid
// listens there and runs as this user. The control link gets the operations that the data path does
// not carry. If the connection ends for another reason than Close, the function failed is called
// once, by any goroutine. That function must not wait for calls of the link.
func Dial(ctx context.Context, path string, pid int, control wire.Link, failed func(error)) (*Link, error) {
	requests, err := dial(ctx, path, pid, prefaceRequests)
	if err != nil {
		return nil, err
	}
	replies, err := dial(ctx, path, pid, prefaceReplies)
	if err != nil {
		requests.Close()
		return nil, err
	}
	l, err := newLink(requests, replies, control, failed)
	if err != nil {
		requests.Close()
		replies.Close()
		return nil, fmt.Errorf("data socket: %w", err)
	}
	return l, nil
}

// newLink makes a Link that owns the connections. If newLink fails, the caller still owns them.
func newLink(requests, replies *net.UnixConn, control wire.Link, failed func(error)) (*Link, error) {
	l := &Link{
		Link: control, conn: replies, failed: failed,
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	in, err := rawio.NewReader(replies)
	if err != nil {
		return nil, err
	}
	l.in = newInbox(in)
	if err := l.out.init(requests, l.fail); err != nil {
		return nil, err
	}
	l.background.Go(l.readInBackground)
	return l, nil
}

func dial(ctx context.Context, path string, pid int, preface string) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("data socket: %w", err)
	}
	unix := conn.(*net.UnixConn)
	if err = checkPeer(unix, pid); err == nil {
		_, err = unix.Write([]byte(preface))
	}
	if err != nil {
		unix.Close()
		return nil, err
	}
	return unix, nil
}

// Close ends the connections. Calls under way fail. Close returns after the
// link's last goroutine has ended.
func (l *Link) Close() {
	l.out.mu.Lock()
	if l.lost == nil {
		l.lost = errLinkClosed
	}
	l.out.mu.Unlock()
	l.out.stop(errLinkClosed)
	l.conn.Close()
	l.out.end.Close()
	l.once.Do(func() { close(l.closed) })
	l.background.Wait()
	l.out.drains.Wait()
}

// call sends the message m and waits for the answer or the end of ctx. The caller must recycle the
// returned call. If err is not nil, m exceeds a limit or the transport has failed. An error from the
// plugin is in the answer.
func (l *Link) call(ctx context.Context, m *message) (*call, error) {
	if err := check(&m.request); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, unsent(err)
	}
	if end, has := ctx.Deadline(); has {
		m.budget = max(time.Until(end), time.Nanosecond)
	}
	c, reads, err := l.send(ctx, m)
	if err != nil {
		return nil, err
	}
	if reads {
		l.readFor(ctx, c)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if c.kind == kindWait && l.answersYet(c) {
			break
		}
		if l.giveUp(c, true) {
			c.recycle()
			return nil, noAnswer(ctx.Err())
		}
		<-c.done // the answer has come after all
	}
	if errors.Is(c.err, context.DeadlineExceeded) {
		wire.AwaitDeadline(ctx)
	}
	return c, nil
}

func unsent(why error) error {
	return fmt.Errorf("%w (%w): %w", driver.ErrUnavailable, driver.ErrNotSent, why)
}

func noAnswer(why error) error {
	return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, wire.ErrNoAnswer, why)
}

// send queues the message m. If no other goroutine is writing, send also writes it. If
// reads is true, the caller must read replies until the reply to m has come; see role.
func (l *Link) send(ctx context.Context, m *message) (c *call, reads bool, err error) {
	l.out.mu.Lock()
	for {
		if l.lost != nil {
			defer l.out.mu.Unlock()
			return nil, false, unsent(l.lost)
		}
		room := l.noRoom(m.kind)
		if room == nil {
			break
		}
		l.out.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return nil, false, unsent(ctx.Err())
		}
		l.out.mu.Lock()
	}
	c = callPool.Get().(*call)
	c.kind, c.ops, c.start = m.kind, len(m.ops), l.out.position()
	l.enter(c)
	write := l.out.queue(func(b []byte) []byte { return m.append(b, c.id) })
	others := l.under.calls() > 1
	reads = l.assign(c)
	l.out.mu.Unlock()
	if write {
		l.out.flush(others)
	}
	return c, reads, nil
}

// noRoom returns nil if there is room for a request of kind k, or a channel to wait for room.
func (l *Link) noRoom(k kind) <-chan struct{} {
	if l.under.of[k] >= maxUnderWay {
		return l.out.wait()
	}
	return l.out.full()
}

func (l *Link) enter(c *call) {
	slot := len(l.slots)
	if last := len(l.free) - 1; last >= 0 {
		slot = l.free[last]
		l.free = l.free[:last]
	} else {
		l.slots = append(l.slots, nil)
	}
	l.count++
	c.id = l.count<<slotBits | uint64(slot)
	l.slots[slot] = c
	l.under.add(c.kind, 1)
}

// leave removes and returns the call with that id, or returns nil if there is none. The callers of
// Link.leave and Link.enter must hold out.mu.
func (l *Link) leave(id uint64) *call {
	slot := int(id & slotMask)
	if slot >= len(l.slots) || l.slots[slot] == nil || l.slots[slot].id != id {
		return nil
	}
	c := l.slots[slot]
	l.slots[slot] = nil
	l.free = append(l.free, slot)
	if l.under.add(c.kind, -1); l.under.of[c.kind] == maxUnderWay-1 {
		l.out.freed()
	}
	return c
}

// answersYet tells the plugin that the caller gives up the call c. It reports whether the answer to
// c has come already or comes within the time grace.
func (l *Link) answersYet(c *call) bool {
	l.giveUp(c, false)
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-c.done:
		return true
	case <-late.C:
		return false
	}
}

// giveUp tells the plugin that the caller gives up the call c. If c has its answer already, giveUp
// returns false. If leave is true, the answer to c is no longer wanted.
func (l *Link) giveUp(c *call, leave bool) bool {
	l.out.mu.Lock()
	if l.slots[c.id&slotMask] != c {
		l.out.mu.Unlock()
		return false
	}
	if leave {
		l.leave(c.id)
	}
	m := message{kind: kindCancel}
	write := l.out.queue(func(b []byte) []byte { return m.append(b, c.id) })
	l.out.mu.Unlock()
	if write {
		l.out.flush(false)
	}
	return true
}

func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("it closed the data connection")
	}
	return fmt.Errorf("data connection: %w", err)
}

// fail ends every call with an error that wraps cause. If the request is still queued, the error
// also wraps driver.ErrNotSent. Otherwise the outcome is unknown. The outbox calls fail once.
func (l *Link) fail(cause error) {
	l.out.mu.Lock()
	closed := l.lost != nil
	if !closed {
		l.lost = cause
	}
	for _, c := range l.slots {
		if c == nil {
			continue
		}
		l.leave(c.id)
		c.answer = answer{err: noAnswer(cause)}
		if c.start >= l.out.taken {
			c.answer.err = unsent(cause)
		}
		c.done <- struct{}{} // does not block, because c gets only one answer
	}
	l.out.mu.Unlock()
	if !closed {
		l.failed(cause)
	}
}
