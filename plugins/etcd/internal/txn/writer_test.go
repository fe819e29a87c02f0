package txn

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/clustertest"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// TestDeliverWaitsForNobody checks that the sender goes on at once after a refused step, and after
// a step whose Then function must wait for other work.
func TestDeliverWaitsForNobody(t *testing.T) {
	w := at(t, clustertest.Nowhere)
	for what, s := range map[string]*Step{
		"was refused":            {},
		"waits for what is near": {OK: true, alongside: make(chan struct{})},
	} {
		answered, delivered := make(chan struct{}), make(chan struct{})
		s.Then = func() { <-answered }
		go func() {
			w.deliver([]*Step{s})
			close(delivered)
		}()
		select {
		case <-delivered:
		case <-time.After(backendtest.Timeout / 10):
			t.Errorf("the sender waits for a step that %s", what)
		}
		close(answered)
	}
}

// TestDeliverAtOnce checks that the Then function runs in no new goroutine if it need not wait.
func TestDeliverAtOnce(t *testing.T) {
	over := make(chan struct{})
	close(over)
	followed := 0
	then := func() { followed++ }
	at(t, clustertest.Nowhere).deliver([]*Step{{OK: true, Then: then}, {OK: true, Then: then, alongside: over}, {OK: true}})
	if followed != 2 {
		t.Errorf("%d of 2 steps are followed when deliver returns", followed)
	}
}

// TestOtherGenerationIsNotSent checks that a step ends without a request
// if the store has lost its data since the step was prepared.
func TestOtherGenerationIsNotSent(t *testing.T) {
	w := at(t, clustertest.Nowhere)
	w.present.Store(&Generation{Base: 8})
	answered := false
	s := &Step{Name: "jobs", Req: &pb.TxnRequest{}, In: &Generation{Base: 7}, OnAnswer: func() { answered = true }}
	must(t, w.Do(t.Context(), s))
	if !answered || !errors.Is(w.cluster.Wrap(s.Err), driver.ErrNotSent) {
		t.Errorf("answered %v, %v", answered, s.Err)
	}
}

// full is a server without space, which refuses even requests that need no space.
type full struct {
	pb.UnimplementedKVServer
	asked atomic.Int64
}

func (f *full) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	f.asked.Add(1)
	return nil, rpctypes.ErrGRPCNoSpace
}

// TestEverythingRefused checks a request that the server refuses for lack of space, although it
// needs no space. The request must not be repeated, and its outcome must be unknown.
func TestEverythingRefused(t *testing.T) {
	f := &full{}
	w := at(t, clustertest.Member(t, func(s *grpc.Server) { pb.RegisterKVServer(s, f) }))
	w.present.Store(&Generation{Base: 8})
	var batch []*Step
	for range 2 {
		s := &Step{Req: &pb.TxnRequest{Success: []*pb.RequestOp{Delete("key")}}, Done: func() bool { return true }}
		s.Open()
		batch = append(batch, s)
	}
	w.do(batch)
	for _, s := range batch {
		if s.OK || !cluster.OutOfSpace(s.Err) || w.cluster.Harmless(s.Err) {
			t.Errorf("%v", s.Err)
		}
	}
	if n := f.asked.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestPuts checks that function puts finds a put even if the put depends on a compare.
func TestPuts(t *testing.T) {
	put, free := Put("key", nil, 0), []*pb.RequestOp{Delete("key"), Exists("key"), When(present("key"), Delete("key"))}
	if puts(free) || !puts(append(free, put)) || !puts(append(free, When(present("key"), put))) {
		t.Errorf("free %v, with a put %v, with one that depends %v", puts(free), puts(append(free, put)), puts(append(free, When(present("key"), put))))
	}
}

// TestStoppedWriter checks that a step submitted after Close is answered.
func TestStoppedWriter(t *testing.T) {
	w := at(t, clustertest.Nowhere)
	must(t, w.cluster.Close(t.Context(), w.Close))
	followed := false
	s := &Step{Name: "jobs", Req: &pb.TxnRequest{}, Then: func() { followed = true }}
	must(t, w.Do(t.Context(), s))
	if !followed || !errors.Is(s.Err, driver.ErrClosed) {
		t.Errorf("followed %v, %v", followed, s.Err)
	}
}
