package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockbench/lockbench/core/driver"
)

// errLeaseGone: the server does not know the lease (any more).
var errLeaseGone = errors.New("etcd: lease has expired or was revoked")

// beat is one keepalive under way. What is below done is valid once it is
// closed.
type beat struct {
	id    int64
	sent  time.Time
	again bool // its first stream broke
	done  chan struct{}
	err   error
}

// over tells that there is nothing to wait for; bt may be nil.
func (bt *beat) over() bool {
	if bt == nil {
		return true
	}
	select {
	case <-bt.done:
		return true
	default:
		return false
	}
}

// pulse sends keepalives on one stream. It never sends one that was not asked
// for: a lease lives on only because locks on it are acquired and renewed.
type pulse struct {
	b     *Backend
	wake  chan struct{}
	mu    sync.Mutex
	queue []*beat
	byID  map[int64]*beat // of queue
	line  *line           // nil when there is no stream
}

// line is one stream. The server answers in order.
type line struct {
	conn   *conn
	stream pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
	sent   []*beat // not answered yet; guarded by pulse.mu
}

func (p *pulse) init(b *Backend) {
	p.b, p.wake, p.byID = b, make(chan struct{}, 1), map[int64]*beat{}
}

// ask queues a keepalive of id that is sent after now. All who ask before it is
// sent share one.
func (p *pulse) ask(id int64) *beat {
	p.mu.Lock()
	defer p.mu.Unlock()
	if bt := p.byID[id]; bt != nil {
		return bt
	}
	bt := &beat{id: id, done: make(chan struct{})}
	p.byID[id] = bt
	p.queue = append(p.queue, bt)
	signal(p.wake)
	return bt
}

// signal wakes the one who reads c, or who will.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run sends what is queued, and gives up a stream that does not answer.
func (p *pulse) run() {
	overdue := time.NewTicker(min(slowAfter, p.b.opts.RequestTimeout/4))
	defer overdue.Stop()
	for {
		select {
		case <-p.wake:
			p.flush()
		case now := <-overdue.C:
			p.expire(now)
		case <-p.b.ctx.Done():
			p.fail(p.current(), driver.ErrClosed)
			p.drain(driver.ErrClosed)
			return
		}
	}
}

func (p *pulse) flush() {
	var l *line
	var err error
	for range p.b.members.all {
		if l, err = p.open(); err == nil || !failing(err) {
			break
		}
	}
	if err != nil {
		p.drain(err)
		return
	}
	p.mu.Lock()
	batch := p.queue
	p.queue = nil
	clear(p.byID)
	now := time.Now()
	for _, bt := range batch {
		bt.sent = now
	}
	l.sent = append(l.sent, batch...)
	p.mu.Unlock()
	for _, bt := range batch {
		if err := l.stream.Send(&pb.LeaseKeepAliveRequest{ID: bt.id}); err != nil {
			l.cancel() // the receiver reports what happened
			return
		}
	}
}

// open returns the present stream, or opens one.
func (p *pulse) open() (*line, error) {
	if l := p.current(); l != nil {
		return l, nil
	}
	defer p.b.health.overdue()()
	c, err := p.b.session(p.b.ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(c.era.Load().ctx))
	stream, err := c.lease.LeaseKeepAlive(ctx)
	if err != nil {
		cancel()
		p.b.broken(c, err)
		return nil, err
	}
	l := &line{conn: c, stream: stream, cancel: cancel}
	p.mu.Lock()
	p.line = l
	p.mu.Unlock()
	if !p.b.spawn(func() { p.receive(l) }) {
		cancel()
	}
	return l, nil
}

func (p *pulse) current() *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.line
}

func (p *pulse) receive(l *line) {
	defer l.cancel()
	for {
		resp, err := l.stream.Recv()
		if err != nil {
			p.b.broken(l.conn, err)
			p.fail(l, err)
			return
		}
		p.mu.Lock()
		var bt *beat
		if len(l.sent) > 0 && l.sent[0].id == resp.ID {
			bt, l.sent = l.sent[0], l.sent[1:]
		}
		p.mu.Unlock()
		if bt == nil {
			p.fail(l, fmt.Errorf("etcd: keepalive of lease %x was answered out of turn", resp.ID))
			return
		}
		if resp.TTL <= 0 {
			bt.err = errLeaseGone
		}
		close(bt.done)
	}
}

// fail ends a stream. What waits for its answers is sent once more, on another:
// the login of a stream expires, and its member may have gone.
func (p *pulse) fail(l *line, err error) {
	if l == nil {
		return
	}
	l.cancel()
	p.mu.Lock()
	waiting := l.sent
	l.sent = nil
	if p.line == l {
		p.line = nil
	}
	var given []*beat
	for _, bt := range waiting {
		if bt.again {
			given = append(given, bt)
			continue
		}
		bt.again = true
		p.queue = append(p.queue, bt)
	}
	p.mu.Unlock()
	finish(given, err)
	if len(waiting) > 0 {
		p.b.health.report(err)
		signal(p.wake)
	}
}

// drain ends what was not sent.
func (p *pulse) drain(err error) {
	p.mu.Lock()
	waiting := p.queue
	p.queue = nil
	clear(p.byID)
	p.mu.Unlock()
	finish(waiting, err)
}

func finish(beats []*beat, err error) {
	for _, bt := range beats {
		bt.err = err
		close(bt.done)
	}
}

// expire gives up a stream whose oldest keepalive had no answer for too long:
// the next stream goes to another member.
func (p *pulse) expire(now time.Time) {
	p.mu.Lock()
	l := p.line
	var since time.Duration
	if l != nil && len(l.sent) > 0 {
		since = now.Sub(l.sent[0].sent)
	}
	p.mu.Unlock()
	switch {
	case since >= p.b.opts.RequestTimeout:
		p.b.members.avoid(l.conn.member)
		p.fail(l, context.DeadlineExceeded)
	case since >= slowAfter && p.b.members.several():
		signal(p.b.health.wake)
	}
}
