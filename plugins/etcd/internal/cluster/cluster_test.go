package cluster_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/clustertest"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// member answers Txn and Range with err as soon as the channel answered is closed.
type member struct {
	pb.UnimplementedKVServer
	err      error
	answered chan struct{} // nil means at once
	txns     atomic.Int64
}

func (m *member) wait(ctx context.Context) error {
	if m.answered == nil {
		return m.err
	}
	select {
	case <-m.answered:
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *member) Txn(ctx context.Context, _ *pb.TxnRequest) (*pb.TxnResponse, error) {
	m.txns.Add(1)
	return &pb.TxnResponse{Header: &pb.ResponseHeader{}}, m.wait(ctx)
}

func (m *member) Range(ctx context.Context, _ *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{}}, m.wait(ctx)
}

// The of function returns a Cluster of two members. The Cluster uses the member ill first.
func of(t *testing.T, ill, well *member) *cluster.Cluster {
	t.Helper()
	var addrs []string
	for _, m := range []*member{ill, well} {
		addrs = append(addrs, clustertest.Member(t, func(s *grpc.Server) { pb.RegisterKVServer(s, m) }))
	}
	c := clustertest.At(t, addrs...)
	if !c.Prefer(addrs[0]) {
		t.Fatal("no such member")
	}
	return c
}

// TestDeclined checks that a request goes to another member if the member in use cannot begin it,
// even if the request must not be done twice. Later requests must go to the other member too.
func TestDeclined(t *testing.T) {
	ill, well := &member{err: rpctypes.ErrGRPCNoLeader}, &member{}
	c := of(t, ill, well)
	for range 2 {
		_, err := c.Txn(t.Context(), false, &pb.TxnRequest{})
		backendtest.Must(t, err)
	}
	if ill.txns.Load() != 1 || well.txns.Load() != 2 {
		t.Errorf("%d and %d requests, want 1 and 2", ill.txns.Load(), well.txns.Load())
	}
}

// TestRefused checks a request that a member refuses. The request counts as not done, and is not
// sent to another member.
func TestRefused(t *testing.T) {
	ill, well := &member{err: rpctypes.ErrGRPCRequestTooLarge}, &member{}
	c := of(t, ill, well)
	_, err := c.Txn(t.Context(), true, &pb.TxnRequest{})
	if !cluster.Is(err, rpctypes.ErrRequestTooLarge) || !c.Harmless(err) || ill.txns.Load() != 1 || well.txns.Load() != 0 {
		t.Errorf("%v, %d and %d requests", err, ill.txns.Load(), well.txns.Load())
	}
}

// TestOutOfSpace checks the error of a member without space. The member may
// have done the request. Its error is an answer, so no other member is asked.
func TestOutOfSpace(t *testing.T) {
	ill, well := &member{err: rpctypes.ErrGRPCNoSpace}, &member{}
	c := of(t, ill, well)
	_, err := c.Txn(t.Context(), true, &pb.TxnRequest{})
	if !cluster.OutOfSpace(err) || c.Harmless(err) || ill.txns.Load() != 1 || well.txns.Load() != 0 {
		t.Errorf("%v, %d and %d requests", err, ill.txns.Load(), well.txns.Load())
	}
	if err := c.Wrap(err); !cluster.OutOfSpace(err) || !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) {
		t.Errorf("its outcome is unknown: %v", err)
	}
	if err := c.Untouched(err); !cluster.OutOfSpace(err) || !c.Harmless(err) {
		t.Errorf("of a request that touched nothing: %v", err)
	}
	if down := c.Down(); down != nil {
		t.Errorf("it has answered: %v", down)
	}
}

// TestWithoutAnswer checks that the Cluster stops using a member that does not answer while another
// member does. A repeatable request then goes to the other member.
func TestWithoutAnswer(t *testing.T) {
	for _, twice := range []bool{false, true} {
		ill, well := &member{answered: make(chan struct{})}, &member{}
		c := of(t, ill, well)
		began := time.Now()
		_, err := c.Txn(t.Context(), twice, &pb.TxnRequest{})
		if twice != (err == nil) || twice != (well.txns.Load() == 1) {
			t.Errorf("twice %v: %v, %d requests to the other member", twice, err, well.txns.Load())
		}
		if err != nil && (c.Harmless(err) || !errors.Is(c.Wrap(err), driver.ErrUnavailable)) {
			t.Errorf("the request was sent: %v", err)
		}
		if took := time.Since(began); took >= c.RequestTimeout() {
			t.Errorf("twice %v: left after %v, the timeout", twice, took)
		}
		_, err = c.Txn(t.Context(), false, &pb.TxnRequest{})
		backendtest.Must(t, err)
	}
}

// TestHealth checks that callers of Follow get a notice when the store stops
// answering, and when it answers again.
func TestHealth(t *testing.T) {
	ill := &member{answered: make(chan struct{})}
	c := clustertest.At(t, clustertest.Member(t, func(s *grpc.Server) { pb.RegisterKVServer(s, ill) }))
	silent := make(chan struct{}, 100)
	c.OnSilence(func() { silent <- struct{}{} })
	f, down := c.Follow()
	if down != nil {
		t.Errorf("before it was asked: %v", down)
	}
	defer f.Close()
	<-f.More()
	if n := f.Take(); len(n) != 1 || n[0].Kind != driver.NoticeDown || n[0].Err == nil || c.Down() == nil {
		t.Errorf("after an outage: %v, %v", n, c.Down())
	}
	<-silent
	close(ill.answered)
	<-f.More()
	if n := f.Take(); len(n) != 1 || n[0].Kind != driver.NoticeUp || n[0].Err != nil || c.Down() != nil {
		t.Errorf("after an answer: %v, %v", n, c.Down())
	}
}

// TestAttempts checks that a member is used again soon after it is back, even if it was away for a
// long time. It expects 8 attempts in 10 s. With grpc's default pauses, there would be 5 attempts.
func TestAttempts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	backendtest.Must(t, err)
	defer l.Close()
	c := clustertest.At(t, "http://"+l.Addr().String())
	f, _ := c.Follow()
	defer f.Close()
	backendtest.Must(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(10*time.Second)))
	for n := range 8 {
		conn, err := l.Accept()
		if err != nil {
			t.Fatalf("%d attempts in 10 s, want 8: %v", n, err)
		}
		_ = conn.Close() // closes it, like a server that stops
	}
}

// TestReset checks the error for a server that resets a connection before it has answered. The
// error must name tls_cert_file, as the server may have refused the certificate.
func TestReset(t *testing.T) {
	c := clustertest.At(t, "https://127.0.0.1:1")
	for text, unsent := range map[string]bool{
		"write tcp 127.0.0.1:2->127.0.0.1:1: write: connection reset by peer":                                                          false,
		"write tcp 127.0.0.1:2->127.0.0.1:1: write: broken pipe":                                                                       false,
		"read tcp 127.0.0.1:2->127.0.0.1:1: read: connection reset by peer":                                                            false,
		"connection error: desc = \"error reading server preface: read tcp 127.0.0.1:2->127.0.0.1:1: read: connection reset by peer\"": true,
		"latest balancer error: connection error: desc = \"write tcp 127.0.0.1:2->127.0.0.1:1: write: connection reset by peer\"":      true,
	} {
		err := c.Wrap(status.Error(codes.Unavailable, text))
		if !strings.Contains(err.Error(), "tls_cert_file") || !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) != unsent {
			t.Error(err)
		}
	}
}

// TestStopped checks that a closed Cluster starts no request, and reports that it is closed.
func TestStopped(t *testing.T) {
	c := of(t, &member{}, &member{})
	backendtest.Must(t, c.Close(t.Context(), func() {}))
	_, err := c.Txn(t.Context(), true, &pb.TxnRequest{})
	if !errors.Is(c.Wrap(err), driver.ErrClosed) || c.Go(func() { t.Error("it runs") }) {
		t.Errorf("%v", err)
	}
}
