package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// event is what a watch tells its subscriber. None is a fact to act upon: each
// is a reason to ask the store, except that the delete of a key is final for
// who had it before. A member that is behind opens a watch at a revision of its
// own, and then tells of changes that its subscriber knows of.
type event struct {
	opened  int64 // not 0: changes after this revision are seen from now on
	changed int64 // not 0: the revision of the last change
	broken  error // the store is not seen; opened follows when it is again
}

// sub is one watch. Its id, on the present stream, is guarded by hub.mu.
type sub struct {
	key     string
	end     []byte
	deletes bool // only deletes are of interest
	notify  func(event)
	id      int64
}

// hub carries all watches of this process on one stream, opened from the
// present revision: an older one would put a watch among those that the server
// brings up to date every 100 ms. What happened before it was opened, or while
// the stream was broken, is for the subscriber to read, told by event.opened;
// so compaction is nothing to a watch.
type hub struct {
	b    *Backend
	wake chan struct{}
	mu   sync.Mutex
	subs map[*sub]struct{}
	tap  *tap // nil when there is no stream
}

// tap is one stream. What follows wake is guarded by hub.mu.
type tap struct {
	conn   *conn
	stream pb.Watch_WatchClient
	cancel context.CancelFunc
	wake   chan struct{}
	byID   map[int64]*sub
	last   int64
	out    []*pb.WatchRequest
}

func (h *hub) init(b *Backend) {
	h.b, h.wake, h.subs = b, make(chan struct{}, 1), map[*sub]struct{}{}
}

// add starts to watch [key, end), or key when end is nil. notify is called from
// one goroutine and must not block.
func (h *hub) add(key string, end []byte, deletes bool, notify func(event)) *sub {
	s := &sub{key: key, end: end, deletes: deletes, notify: notify}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs[s] = struct{}{}
	if h.tap != nil {
		h.tap.create(s)
	} else {
		signal(h.wake)
	}
	return s
}

// drop ends a watch. A notify that has begun may still be under way.
func (h *hub) drop(s *sub) {
	if s == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.subs[s]; !known {
		return
	}
	delete(h.subs, s)
	if t := h.tap; t != nil && t.byID[s.id] == s {
		delete(t.byID, s.id)
		t.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: s.id}}})
	}
}

func (t *tap) create(s *sub) {
	t.last++
	s.id = t.last
	t.byID[s.id] = s
	req := &pb.WatchCreateRequest{Key: []byte(s.key), RangeEnd: s.end, WatchId: s.id, Fragment: true}
	if s.deletes {
		req.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}
	}
	t.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: req}})
}

func (t *tap) send(r *pb.WatchRequest) {
	t.out = append(t.out, r)
	signal(t.wake)
}

// run keeps a stream open while anybody watches.
func (h *hub) run() {
	for {
		select {
		case <-h.wake:
		case <-h.b.ctx.Done():
			return
		}
		pause := reopenPause
		for h.wanted() {
			began := time.Now()
			t, err := h.open()
			if err == nil {
				err = h.serve(t)
			}
			if time.Since(began) > maxReopenPause {
				pause = reopenPause
			}
			if h.b.ctx.Err() != nil {
				return
			}
			h.b.health.report(err)
			h.tell(event{broken: h.b.wrap(err)})
			select {
			case <-time.After(pause):
			case <-h.b.ctx.Done():
				return
			}
			pause = min(2*pause, maxReopenPause)
		}
	}
}

// Pauses between two attempts to open the stream; a refusal costs a new login.
const (
	reopenPause    = 50 * time.Millisecond
	maxReopenPause = time.Second
)

func (h *hub) wanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subs) > 0
}

func (h *hub) open() (*tap, error) {
	defer h.b.health.overdue()()
	c, err := h.b.session(h.b.ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(c.ctx))
	stream, err := c.watch.Watch(ctx)
	if err != nil {
		cancel()
		h.b.broken(c, err)
		return nil, err
	}
	t := &tap{conn: c, stream: stream, cancel: cancel, wake: make(chan struct{}, 1), byID: map[int64]*sub{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tap = t
	for s := range h.subs {
		t.create(s)
	}
	return t, nil
}

// serve works on a stream until it breaks.
func (h *hub) serve(t *tap) error {
	var sender sync.WaitGroup
	sender.Go(func() { h.feed(t) })
	var err error
	for err == nil {
		var resp *pb.WatchResponse
		if resp, err = t.stream.Recv(); err == nil {
			err = h.receive(t, resp)
		}
	}
	h.mu.Lock()
	h.tap = nil
	h.mu.Unlock()
	t.cancel()
	sender.Wait()
	h.b.broken(t.conn, err)
	return err
}

func (h *hub) feed(t *tap) {
	for {
		select {
		case <-t.wake:
		case <-t.stream.Context().Done():
			return
		}
		h.mu.Lock()
		out := t.out
		t.out = nil
		h.mu.Unlock()
		for _, r := range out {
			if t.stream.Send(r) != nil {
				return // Recv says why
			}
		}
	}
}

// receive passes one message on. An error gives up the stream.
func (h *hub) receive(t *tap, resp *pb.WatchResponse) error {
	if resp.Created && resp.Canceled {
		// Old servers say that rights are missing when the login has expired.
		if h.b.opts.Username != "" {
			h.b.forsake(t.conn)
		}
		return fmt.Errorf("etcd: watch refused: %s", resp.CancelReason)
	}
	h.mu.Lock()
	s := t.byID[resp.WatchId]
	if s != nil && resp.Canceled { // by the server: start over at the present
		delete(t.byID, resp.WatchId)
		t.create(s)
	}
	h.mu.Unlock()
	switch {
	case s == nil || resp.Canceled:
	case resp.Created:
		s.notify(event{opened: resp.Header.Revision})
	case len(resp.Events) > 0:
		s.notify(event{changed: resp.Events[len(resp.Events)-1].GetKv().GetModRevision()})
	}
	return nil
}

func (h *hub) tell(e event) {
	h.mu.Lock()
	all := make([]*sub, 0, len(h.subs))
	for s := range h.subs {
		all = append(all, s)
	}
	h.mu.Unlock()
	for _, s := range all {
		s.notify(e)
	}
}

// reset gives up the present stream.
func (h *hub) reset() {
	h.mu.Lock()
	t := h.tap
	h.mu.Unlock()
	if t != nil {
		t.cancel()
	}
}
