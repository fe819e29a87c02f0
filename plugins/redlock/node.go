package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// state decides whether requests to a node wait, are sent, or are refused.
type state int8

const (
	starting state = iota // connecting; requests wait for at most a few NodeTimeouts
	up
	down // requests are refused at once; the run method goes on trying to connect
)

// node is one of the masters. All requests for votes go over one connection, one script after the
// other, so that they reach the node in order. So the SET of an attempt cannot arrive after the DEL
// of its undo. Requests that are queued while a script is under way share the next script.
//
// Note: do not replace kit.Queue by kit.Batcher. One goroutine sends, connects and checks the
// server, so the connection needs no mutex. One mutex guards both the queue field and the state
// field. A Batcher would save only the channel called more, and would need another goroutine.
type node struct {
	b      *Backend
	index  int
	addr   string
	client *goredis.Client
	store  *redisnode.Node // its queues of waiters, over other connections
	links  *redisnode.Links

	// ahead is the node's clock minus Backend.clock, in microseconds, measured when the last reply
	// arrived. It is too small by the reply's travel time. It is 0 before the first reply.
	ahead atomic.Int64
	// maxAhead is the node's clock minus Backend.clock, in microseconds, with Backend.clock read when
	// the last request was sent. It is too large by the request's travel time.
	maxAhead atomic.Int64

	// identity is a hash of the server's run id, so it is the same on every host.
	identity atomic.Uint64

	more chan struct{} // signals that the queue has grown

	mu     sync.Mutex
	state  state
	cause  error       // why the node is not up
	late   *time.Timer // ends the state called starting after a while
	queue  kit.Queue[*quorumRequest]
	server redisnode.Server
	held   quarantine // only the goroutine of run changes it
	// uncertain is a set of owners. A request that grants the lock to such an owner was sent over a
	// connection that then broke. The request may still reach the node.
	uncertain kit.Recent[string, struct{}]
	// retries are requests that the node missed and that end a lease or an attempt, oldest first.
	retries []*quorumRequest
	retried time.Time // when retries were last sent
	asked   bool      // requests are on their way to the node
}

const maxRetries = 10_000

// errConnecting is why a node does not vote while the first try to connect or reconnect goes on.
var errConnecting = errors.New("not connected yet")

func newNode(b *Backend, index int, a redisnode.Address) (*node, error) {
	n := &node{
		b: b, index: index, addr: a.Addr, links: &redisnode.Links{}, more: make(chan struct{}, 1),
		queue: kit.NewQueue(kit.Limits[*quorumRequest]{
			Count: func() int { return maxPerScript },
			Size:  func(b *quorumRequest) int { return len(b.rest) }, Room: func() int { return maxBytes },
		}),
	}
	n.uncertain.Age = redisnode.TombstoneFor
	var err error
	if n.client, err = newClient(b.opts, a, n.links); err != nil {
		return nil, err
	}
	n.store = redisnode.NewNode(n.client, redisnode.Options{Keys: b.keys, ID: b.id, Turns: waitScript, Batches: 1, Links: n.links, Silence: b.opts.RequestTimeout})
	return n, nil
}

// Requests wait for a node's first connection for at most firstConnect * NodeTimeout. Making this
// connection takes several round trips.
const firstConnect = 5

// start makes requests wait until the node is connected, for at most timeout.
func (n *node) start(timeout time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state, n.cause = starting, errConnecting
	n.late = time.AfterFunc(timeout, func() { n.leave(errConnecting) })
}

func (n *node) enter(s redisnode.Server) {
	n.identity.Store(fnv1a(fnvStart, s.RunID))
	n.mu.Lock()
	n.late.Stop()
	n.state, n.cause, n.server = up, nil, s
	n.retry()
	n.mu.Unlock()
	n.b.changed.Up()
	n.b.log.Info("node votes or will soon", "node", n.addr)
}

// retry moves the requests in retries to the head of the node's queue. The caller must hold mu.
func (n *node) retry() {
	waiting := n.queue.Drain()
	for _, b := range n.retries {
		if time.Now().Before(b.until) {
			n.queue.Add(n.b.retryOf(b))
		}
	}
	n.queue.Add(waiting...)
	n.retries, n.retried = nil, time.Now()
}

// leave sets the state to down, so that requests fail with the cause, and returns the state before.
// It does nothing if the cause is errConnecting and the state is not starting any more.
func (n *node) leave(cause error) (was state) {
	n.mu.Lock()
	if was = n.state; was != starting && cause == errConnecting {
		n.mu.Unlock()
		return was
	}
	n.late.Stop()
	n.state, n.cause, n.asked = down, cause, false
	refused := n.queue.Drain()
	n.mu.Unlock()
	n.b.changed.Up()
	if was == up && !errors.Is(cause, driver.ErrClosed) {
		n.b.log.Warn("node is left out", "node", n.addr, "cause", cause)
	}
	for _, b := range refused {
		n.answer(b, vote{answer: unsent, err: cause})
	}
	return was
}

func (n *node) status() (state, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state, n.cause
}

// connecting reports whether the first try to connect or reconnect still goes on.
func (n *node) connecting() bool {
	_, cause := n.status()
	return errors.Is(cause, errConnecting)
}

func (n *node) votes() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state == up && n.held.episode == "" && n.store.Refusal() == nil
}

// enqueue queues requests for the node in the given order. It does not block.
func (n *node) enqueue(requests ...*quorumRequest) {
	n.mu.Lock()
	if n.state == down {
		cause := n.cause
		n.mu.Unlock()
		for _, b := range requests {
			if b.asks(n.index) {
				n.answer(b, vote{answer: unsent, err: cause})
			}
		}
		return
	}
	for _, b := range requests {
		if !b.asks(n.index) {
			continue
		}
		n.queue.Add(b)
		if b.kind == kindRelease && b.ms == 0 && n.uncertain.Take(b.owner) {
			n.queue.Add(n.b.retryOf(b))
		}
	}
	n.mu.Unlock()
	kit.Wake(n.more)
}

const (
	// maxPerScript and maxBytes limit the requests in one script, because a
	// node does nothing else while it runs the script.
	maxPerScript = 64
	maxBytes     = 256 << 10
)

func (n *node) take() []*quorumRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.retries) > 0 && time.Since(n.retried) >= lookEvery {
		n.retry()
	}
	taken := n.queue.Take()
	n.asked = len(taken) > 0
	return taken
}

// answer delivers the node's vote v on the request b, or the reason why there is no vote. If b ends
// a lease or an attempt, and the node has not done that, then b is sent again later.
func (n *node) answer(b *quorumRequest, v vote) {
	if v.absent() && b.givesUp() {
		n.mu.Lock()
		n.retryLater(b)
		n.mu.Unlock()
	}
	b.deliver(n.index, v)
}

// retryLater adds the request b to retries. The caller must hold mu.
func (n *node) retryLater(b *quorumRequest) {
	if len(n.retries) == maxRetries {
		n.retries[0] = nil
		n.retries = n.retries[1:]
	}
	n.retries = append(n.retries, n.b.retryOf(b))
}

// hurry makes the node's goroutine send the missed requests (retries) now. It reports whether
// requests to the node may still be queued or under way.
func (n *node) hurry() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.retried = time.Time{}
	kit.Wake(n.more)
	return len(n.retries) > 0 || n.asked || !n.queue.Empty()
}

func (n *node) owed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.retries)
}

func (n *node) quarantine(q quarantine) {
	n.mu.Lock()
	was := n.held.episode
	n.held = q
	n.mu.Unlock()
	switch q.episode {
	case was:
		return
	case "":
		n.b.log.Info("node votes again", "node", n.addr)
	default:
		n.b.log.Warn("node has lost its data, or is new, and does not vote for a while; "+
			"on a fresh cluster init skips that", "node", n.addr, "until", q.ends, "init", n.b.initCommand())
	}
	n.b.changed.Up()
}

// refuse records why the server must not grant locks. If err is nil, the server may grant locks.
func (n *node) refuse(err error) {
	if !n.store.Refuse(err) {
		return
	}
	n.b.changed.Up()
	if err != nil {
		n.b.log.Warn("node grants nothing", "node", n.addr, "cause", err)
	}
}

// describe returns a text that says why the node does not vote, or "" if the node votes.
func (n *node) describe() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	refusal := n.store.Refusal()
	switch {
	case n.state != up:
		return fmt.Sprintf("%s: %v", n.addr, n.cause)
	case refusal != nil:
		return refusal.Error()
	case n.held.episode != "":
		return fmt.Sprintf("%s: is new or has lost its data, and votes in %v",
			n.addr, max(0, time.Until(n.held.ends)).Round(time.Second))
	}
	return ""
}

// session makes a connection and uses it until it breaks. It returns nil if the backend is closed.
func (n *node) session(ctx context.Context) error {
	began := time.Now()
	conn := n.client.EphemeralConn()
	defer conn.Close()
	s, err := n.b.inspectServer(ctx, n, conn)
	if err != nil {
		return err
	}
	if was := n.server.RunID; was != "" && was != s.RunID {
		n.links.Leave(began) // this node's queues of waiters are now on another server
	}
	n.refuse(s.Evicts(n.addr))
	n.held.next = time.Time{} // the server may have lost its data
	c := &connection{n: n, conn: conn, marker: n.b.opts.marker(s.RunID), looked: time.Now()}
	if err := c.vote(ctx, nil); err != nil {
		return err
	}
	n.enter(s)
	return c.serve(ctx)
}

// run keeps the node connected until ctx ends or the backend closes.
func (n *node) run(ctx context.Context) {
	var pause time.Duration
	for {
		err := n.session(ctx)
		n.b.mu.Lock()
		maps.DeleteFunc(n.b.servers, func(_ string, other *node) bool { return other == n })
		n.b.mu.Unlock()
		if err == nil || ctx.Err() != nil {
			err = driver.ErrClosed
		}
		was := n.leave(err)
		if errors.Is(err, driver.ErrClosed) {
			return
		}
		if was == up {
			pause = 0
			if !redisnode.TimedOut(err) {
				// The node closed the connection, because it restarted or because the connection was idle. In
				// both cases it will soon accept a new connection.
				n.start(n.b.opts.NodeTimeout)
				continue
			}
		}
		pause = min(2*pause+20*time.Millisecond, time.Second)
		select {
		case <-time.After(jitter(pause)):
		case <-n.b.background.Done():
			return
		}
	}
}
