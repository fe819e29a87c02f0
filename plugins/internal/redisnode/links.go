package redisnode

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Links are the connections of one client. The client has no list of them, and
// closes one only when it breaks or says READONLY outside of a script; but what
// one reply tells of a server holds for all connections to it. A name may have
// led new connections to another server for long, and cut none of the old ones.
//
// A connection that is left is closed when the client looks for an idle one, and
// that of wake-ups, which is never idle, at once. Replies that are under way
// arrive.
type Links struct {
	// Labels has connections take the run id of their server from the first
	// INFO.
	Labels bool

	mu     sync.Mutex
	open   map[*serverConn]struct{}
	failed time.Time     // when a server was last found that does not serve
	pause  time.Duration // for how long after that no connection is made
}

// How long after a server that does not serve the next connection is made: the first
// one at once, and the others after pauses that double.
const (
	firstPause = 25 * time.Millisecond
	mostPause  = 250 * time.Millisecond
	calmAfter  = 4 * mostPause
)

// Leave leaves the connections that were made before the given time: what was
// asked then has shown that their server does not serve.
func (l *Links) Leave(before time.Time) {
	l.leave(func(c *serverConn) bool { return c.made.Before(before) })
	l.Refused()
}

// Keep leaves the connections to other servers than the one with the run id.
func (l *Links) Keep(run string) {
	l.leave(func(c *serverConn) bool { return c.run != "" && c.run != run })
}

func (l *Links) leave(which func(*serverConn) bool) {
	var wakeups []*serverConn
	l.mu.Lock()
	for c := range l.open {
		if which(c) {
			c.left.Store(true)
			if c.wakeups {
				wakeups = append(wakeups, c)
			}
		}
	}
	l.mu.Unlock()
	for _, c := range wakeups {
		_ = c.Close()
	}
}

// Refused has the next connections wait: a new one has led to a server that
// does not serve.
func (l *Links) Refused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.failed) > calmAfter {
		l.pause = 0
	} else {
		l.pause = min(2*l.pause+firstPause, mostPause)
	}
	l.failed = time.Now()
}

// rest waits until a connection may be made.
func (l *Links) rest(ctx context.Context) {
	l.mu.Lock()
	pause := time.Until(l.failed.Add(l.pause))
	l.mu.Unlock()
	if pause <= 0 {
		return
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// Lead reports whether a connection that can be used leads to the server with
// the run id: it will be asked before a new one is made, and so tell when that
// server serves no more. One of wake-ups would not.
func (l *Links) Lead(run string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.run == run && !c.wakeups && !c.left.Load() && !hungUp(c.Conn) {
			return true
		}
	}
	return false
}

func (l *Links) add(c *serverConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*serverConn]struct{}{}
	}
	l.open[c] = struct{}{}
}

func (l *Links) remove(c *serverConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// link is what a [serverConn] has for its Links.
type link struct {
	links   *Links
	made    time.Time
	wakeups bool
	left    atomic.Bool

	// run is guarded by links.mu. head is what has come of the replies before
	// it is known.
	run     string
	labeled bool
	head    []byte
}

// mostHead is in how much the run id must have come; some managed servers hide it.
const mostHead = 16 << 10

// label takes the run id of the server from what comes first: the answers to
// the login and to INFO, in pieces perhaps.
func (c *link) label(p []byte) {
	if !c.links.Labels || c.labeled {
		return
	}
	c.head = slices.Concat(c.head, p)
	_, rest, ok := bytes.Cut(c.head, []byte("\nrun_id:"))
	run, _, whole := bytes.Cut(rest, []byte("\r"))
	if !(ok && whole) && len(c.head) < mostHead {
		return
	}
	c.labeled, c.head = true, nil
	c.links.mu.Lock()
	c.run = string(run)
	c.links.mu.Unlock()
}

var errLeft = errors.New("the connection leads to a server that does not serve")

// SyscallConn implements syscall.Conn, by which the client looks at a connection
// that was idle: a connection that was left is no good.
func (c *serverConn) SyscallConn() (syscall.RawConn, error) {
	if c.left.Load() {
		return nil, errLeft
	}
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return opaque{}, nil
}

// opaque is a connection whose descriptor says nothing, as below TLS.
type opaque struct{ syscall.RawConn }

// Read implements syscall.RawConn.
func (opaque) Read(func(fd uintptr) bool) error { return nil }

// Close implements net.Conn.
func (c *serverConn) Close() error {
	c.links.remove(c)
	return c.Conn.Close()
}

// silentServer reports whether err is that no reply came.
func silentServer(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
