package keepalive

import (
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/clustertest"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// leases is a server for keepalives. For each stream, it calls the function serve with the stream's
// number.
type leases struct {
	pb.UnimplementedLeaseServer
	streams chan int
	serve   func(stream pb.Lease_LeaseKeepAliveServer, nth int) error
}

func (l *leases) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	nth := <-l.streams
	l.streams <- nth + 1
	return l.serve(stream, nth)
}

func on(t *testing.T, serve func(stream pb.Lease_LeaseKeepAliveServer, nth int) error) *cluster.Cluster {
	l := &leases{streams: make(chan int, 1), serve: serve}
	l.streams <- 0
	return clustertest.At(t, clustertest.Member(t, func(s *grpc.Server) { pb.RegisterLeaseServer(s, l) }))
}

func ended(t *testing.T, k *Keepalive) error {
	t.Helper()
	select {
	case <-k.Done:
		return k.Err
	case <-time.After(backendtest.Timeout):
		t.Fatal("no answer")
		return nil
	}
}

// echo answers every keepalive, and says that lease 2 has ended.
func echo(stream pb.Lease_LeaseKeepAliveServer, _ int) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		answer := &pb.LeaseKeepAliveResponse{ID: r.ID, TTL: 10}
		if r.ID == 2 {
			answer.TTL = 0
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func TestSend(t *testing.T) {
	s := New(on(t, echo))
	before := time.Now()
	first, gone := s.Send(1), s.Send(2)
	if err := ended(t, first); err != nil || first.Sent.Before(before) {
		t.Errorf("%v, sent %v before it was asked for", err, before.Sub(first.Sent))
	}
	if err := ended(t, gone); !errors.Is(err, ErrGone) {
		t.Errorf("of a lease that is gone: %v", err)
	}
}

// TestShared checks that calls for one lease share a keepalive until it is sent, and that later
// calls get another keepalive.
func TestShared(t *testing.T) {
	s := &Sender{cluster: on(t, echo), wake: make(chan struct{}, 1)}
	first := s.Send(1)
	if s.Send(1) != first || s.Send(3) == first {
		t.Error("not one for each lease")
	}
	s.cluster.Go(s.run)
	if err := ended(t, first); err != nil {
		t.Error(err)
	}
	if s.Send(1) == first {
		t.Error("shared with one that was sent before")
	}
}

// TestBrokenStream checks that a keepalive is sent exactly once more if its stream breaks.
func TestBrokenStream(t *testing.T) {
	s := New(on(t, func(stream pb.Lease_LeaseKeepAliveServer, nth int) error {
		if nth == 0 || nth > 1 {
			_, _ = stream.Recv()
			return errors.New("broken")
		}
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveResponse{ID: r.ID, TTL: 10}); err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}))
	if err := ended(t, s.Send(1)); err != nil {
		t.Errorf("the second stream has answered: %v", err)
	}
	if err := ended(t, s.Send(1)); err == nil {
		t.Error("two streams broke, and there is no error")
	}
}

// TestOutOfOrder checks that a stream is given up when its answers do not come in order.
func TestOutOfOrder(t *testing.T) {
	s := New(on(t, func(stream pb.Lease_LeaseKeepAliveServer, nth int) error {
		if nth > 0 {
			return echo(stream, nth)
		}
		r, err := stream.Recv()
		if err == nil {
			err = stream.Send(&pb.LeaseKeepAliveResponse{ID: r.ID + 1, TTL: 10})
		}
		<-stream.Context().Done()
		return err
	}))
	if err := ended(t, s.Send(1)); err != nil {
		t.Errorf("the next stream answers: %v", err)
	}
}
