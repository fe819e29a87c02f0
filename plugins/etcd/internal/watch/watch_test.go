package watch

import (
	"errors"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/clustertest"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// watcher is a server that passes each of its streams to the test.
type watcher struct {
	pb.UnimplementedWatchServer
	streams chan *serving
}

// serving is the server's side of one stream.
type serving struct {
	pb.Watch_WatchServer
	t    *testing.T
	done chan error
}

func (w *watcher) Watch(stream pb.Watch_WatchServer) error {
	s := &serving{Watch_WatchServer: stream, done: make(chan error)}
	w.streams <- s
	select {
	case err := <-s.done:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

func serve(t *testing.T) (*cluster.Cluster, *watcher) {
	w := &watcher{streams: make(chan *serving, 8)}
	return clustertest.At(t, clustertest.Member(t, func(s *grpc.Server) { pb.RegisterWatchServer(s, w) })), w
}

func (w *watcher) next(t *testing.T) *serving {
	t.Helper()
	s := receive(t, w.streams)
	s.t = t
	return s
}

// created answers the next request, which must create a watch, and returns the request.
func (s *serving) created(rev int64) *pb.WatchCreateRequest {
	s.t.Helper()
	r, err := s.Recv()
	backendtest.Must(s.t, err)
	c := r.GetCreateRequest()
	if c == nil {
		s.t.Fatalf("%v, want to watch", r)
	}
	s.send(&pb.WatchResponse{WatchId: c.WatchId, Created: true}, rev)
	return c
}

func (s *serving) send(r *pb.WatchResponse, rev int64) {
	s.t.Helper()
	r.Header = &pb.ResponseHeader{Revision: rev}
	backendtest.Must(s.t, s.Send(r))
}

func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(backendtest.Timeout):
		t.Fatal("nothing comes")
	}
	return v
}

func expect(t *testing.T, c <-chan Event, want ...Event) {
	t.Helper()
	for _, w := range want {
		if got := receive(t, c); got != w {
			t.Fatalf("got %+v, want %+v", got, w)
		}
	}
}

func changed(id, rev int64) *pb.WatchResponse {
	return &pb.WatchResponse{WatchId: id, Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{ModRevision: rev}}}}
}

// TestOneStream checks that all watches share one stream, and that each gets only its keys' events.
func TestOneStream(t *testing.T) {
	c, server := serve(t)
	m := New(c)
	one, two := make(chan Event, 8), make(chan Event, 8)
	m.Deletes("a", 5, func(e Event) { one <- e })
	s := server.next(t)
	a := s.created(5)
	expect(t, one, Event{Opened: 5})
	second := m.Changes("b", []byte("c"), func(e Event) { two <- e })
	b := s.created(6)
	expect(t, two, Event{Opened: 6})
	if string(a.Key) != "a" || a.RangeEnd != nil || !slices.Contains(a.Filters, pb.WatchCreateRequest_NOPUT) {
		t.Errorf("asked for %v", a)
	}
	if string(b.RangeEnd) != "c" || len(b.Filters) > 0 || a.WatchId == b.WatchId || a.StartRevision+b.StartRevision != 0 {
		t.Errorf("asked for %v", b)
	}
	s.send(changed(b.WatchId, 8), 8)
	s.send(changed(a.WatchId, 7), 8)
	expect(t, one, Event{Changed: 7})
	expect(t, two, Event{Changed: 8})
	m.Drop(second)
	m.Drop(nil)
	if r, err := s.Recv(); err != nil || r.GetCancelRequest().GetWatchId() != b.WatchId {
		t.Errorf("after Drop: %v, %v", r, err)
	}
}

// TestReopened checks that a stream that breaks or is reset is reported, and
// that all watches continue at the present revision on another stream.
func TestReopened(t *testing.T) {
	c, server := serve(t)
	m := New(c)
	events := make(chan Event, 8)
	m.Deletes("a", 5, func(e Event) { events <- e })
	s := server.next(t)
	s.created(5)
	s.done <- errors.New("broken")
	server.next(t).created(9)
	expect(t, events, Event{Opened: 5}, Event{}, Event{Opened: 9})
	m.Reset()
	server.next(t).created(11)
	expect(t, events, Event{}, Event{Opened: 11})
}

// TestCancelledByServer checks that a watch that the server ends begins again on the same stream.
// If the server refuses a watch, the stream must end.
func TestCancelledByServer(t *testing.T) {
	c, server := serve(t)
	m := New(c)
	events := make(chan Event, 8)
	m.Deletes("a", 5, func(e Event) { events <- e })
	s := server.next(t)
	first := s.created(5)
	s.send(&pb.WatchResponse{WatchId: first.WatchId, Canceled: true, CompactRevision: 7}, 8)
	if again := s.created(8); again.WatchId == first.WatchId || string(again.Key) != "a" {
		t.Errorf("asked for %v", again)
	}
	expect(t, events, Event{Opened: 5}, Event{Opened: 8})
	s.send(&pb.WatchResponse{WatchId: -1, Created: true, Canceled: true, CancelReason: "no"}, 8)
	server.next(t).created(9)
	expect(t, events, Event{}, Event{Opened: 9})
}

// TestDroppedWatchIsTakenUp checks that the next watch of a key reuses a watch that was dropped a
// moment ago, unless the dropped watch has seen a delete or may have missed one.
func TestDroppedWatchIsTakenUp(t *testing.T) {
	c, server := serve(t)
	m := New(c)
	events := make(chan Event, 8)
	follow := func(revision int64) *Watch {
		return m.Deletes("a", revision, func(e Event) { events <- e })
	}
	first := follow(4)
	s := server.next(t)
	id := s.created(5).WatchId
	expect(t, events, Event{Opened: 5})
	m.Drop(first)
	second := follow(6)
	m.Drop(first) // has no effect on second
	s.send(changed(id, 7), 7)
	expect(t, events, Event{Changed: 7})
	m.Drop(second)
	third := follow(6) // does not reuse the watch, which has seen a delete
	if again := s.created(8); again.WatchId == id {
		t.Errorf("asked for %v", again)
	}
	expect(t, events, Event{Opened: 8})
	m.Drop(third)
	if r, err := s.Recv(); err != nil || r.GetCancelRequest() == nil {
		t.Errorf("after two were dropped: %v, %v", r, err)
	}
}
