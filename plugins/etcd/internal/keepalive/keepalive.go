// Package keepalive sends the keepalives of all leases of a process on one
// stream. It sends only the keepalives that callers ask for, so a lease
// expires if no lock on it is acquired, waited for or renewed.
package keepalive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// ErrGone is the error of a keepalive whose lease the server does not know, or
// no longer knows.
var ErrGone = errors.New("etcd: lease has expired or was revoked")

// Keepalive is one keepalive under way. Sent and Err are valid once Done is closed. After the
// cluster was closed, Done may stay open.
type Keepalive struct {
	Done chan struct{}
	Sent time.Time
	Err  error // an error of the client library

	id       int64
	again    bool   // sent a second time, because its first stream broke
	answered func() // see cluster.Stream.Expect
}

// Sender sends keepalives. Its methods may be called from any number of goroutines.
type Sender struct {
	cluster *cluster.Cluster
	wake    chan struct{}

	mu     sync.Mutex
	queue  []*Keepalive // not sent yet: one for each lease, and those to send a second time
	stream *stream      // nil before the first; only the run method uses it
}

// stream is one stream of keepalives, which the server answers in the order of sending.
type stream struct {
	pb.Lease_LeaseKeepAliveClient
	*cluster.Stream
	sent []*Keepalive // not answered yet; guarded by Sender.mu
}

// New returns a Sender that sends keepalives until the cluster c is closed.
func New(c *cluster.Cluster) *Sender {
	s := &Sender{cluster: c, wake: make(chan struct{}, 1)}
	c.Go(s.run)
	return s
}

// Send queues a keepalive of the lease with the given id, and returns at once.
// Further calls with this id share the keepalive until it is sent.
func (s *Sender) Send(id int64) *Keepalive {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.queue {
		if k.id == id && !k.again {
			return k
		}
	}
	k := &Keepalive{id: id, Done: make(chan struct{})}
	s.queue = append(s.queue, k)
	kit.Wake(s.wake)
	return k
}

func (s *Sender) run() {
	for {
		select {
		case <-s.wake:
			s.flush()
		case <-s.cluster.Context().Done():
			return
		}
	}
}

func (s *Sender) flush() {
	if s.stream == nil || s.stream.Context().Err() != nil {
		client, link, err := s.cluster.KeepAlive()
		if err != nil {
			s.mu.Lock()
			waiting := s.queue
			s.queue = nil
			s.mu.Unlock()
			finish(waiting, err)
			return
		}
		opened := &stream{Lease_LeaseKeepAliveClient: client, Stream: link}
		s.stream = opened
		s.cluster.Apart(func() { s.receive(opened) }) // returns at once after Close: the stream has ended
	}
	on := s.stream
	s.mu.Lock()
	if on.Context().Err() != nil { // this stream has failed meanwhile, so no answer would come
		s.mu.Unlock()
		kit.Wake(s.wake)
		return
	}
	batch := s.queue
	s.queue = nil
	now := time.Now()
	for _, k := range batch {
		k.Sent, k.answered = now, on.Expect(func() { s.fail(on, context.DeadlineExceeded) })
	}
	on.sent = append(on.sent, batch...)
	s.mu.Unlock()
	for _, k := range batch {
		if err := on.Send(&pb.LeaseKeepAliveRequest{ID: k.id}); err != nil {
			on.Cancel() // the receiver reports the reason
			return
		}
	}
}

func (s *Sender) receive(on *stream) {
	err := cluster.Receive(on.Stream, on.Recv, func(resp *pb.LeaseKeepAliveResponse) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(on.sent) == 0 || on.sent[0].id != resp.ID {
			return fmt.Errorf("etcd: keepalive of lease %x was answered out of order", resp.ID)
		}
		k := on.sent[0]
		on.sent = on.sent[1:]
		k.answered()
		if resp.TTL <= 0 {
			k.Err = ErrGone
		}
		close(k.Done)
		return nil
	})
	s.fail(on, err)
}

// fail ends a stream. The stream's unanswered keepalives are sent once more, on another stream,
// because a login may have expired, or the member may have gone.
func (s *Sender) fail(on *stream, err error) {
	on.Cancel()
	s.mu.Lock()
	waiting := on.sent
	on.sent = nil
	var given []*Keepalive
	for _, k := range waiting {
		k.answered()
		if k.again {
			given = append(given, k)
			continue
		}
		k.again = true
		s.queue = append(s.queue, k)
	}
	s.mu.Unlock()
	finish(given, err)
	if len(waiting) > 0 {
		s.cluster.Report(err)
		kit.Wake(s.wake)
	}
}

func finish(keepalives []*Keepalive, err error) {
	for _, k := range keepalives {
		k.Err = err
		close(k.Done)
	}
}
