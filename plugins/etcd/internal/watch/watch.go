// Package watch carries all watches of a process on one stream.
package watch

import (
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Event is what a watch reports. None is a fact to act upon: each is a reason to
// ask the store, except that the delete of a key is final for who had it before.
// A member that is behind opens a watch at a revision of its own, and then
// reports changes that are known already.
//
// In the zero Event the stream is broken and nothing is seen, until another one
// has Opened.
type Event struct {
	Opened  int64 // not 0: changes after this revision are seen from now on
	Changed int64 // not 0: the revision of the last change
	// Created and Version are those of the key that this change has deleted, 0 when
	// they are not known.
	Created, Version int64
}

// Watch is one watch. What follows notify is of the present stream, and guarded by
// Mux.mu.
type Watch struct {
	key     string
	end     []byte
	deletes bool // only deletes are of interest
	notify  func(Event)
	id      int64
	opened  int64 // as in Event; 0 until the server says so
	changed int64 // as in Event
}

// Mux carries watches on one stream, opened from the present revision: an older
// one would put a watch among those that the server brings up to date every
// 100 ms. What happened before it was opened, or while the stream was broken, is
// for the one who watches to read, at Event.Opened; so compaction is nothing to
// a watch. Its methods may be called from any number of goroutines.
type Mux struct {
	cluster *cluster.Cluster
	wake    chan struct{}

	mu      sync.Mutex
	watches map[*Watch]struct{}
	stream  *stream // nil when there is none
}

// spareFor is how long a watch that was dropped stays open, for the next one of
// its key. Those who wait for a lock again and again mostly follow the same one:
// each turn would end a watch and begin it anew.
const spareFor = time.Second

// stream is one stream. What follows wake is guarded by Mux.mu.
type stream struct {
	pb.Watch_WatchClient
	*cluster.Stream
	wake  chan struct{}
	byID  map[int64]*Watch
	spare map[string]*Watch // by key; also in byID
	last  int64
	out   []*pb.WatchRequest
}

// New returns a Mux, which works until c is closed. When the store is silent it
// gives up its stream.
func New(c *cluster.Cluster) *Mux {
	m := &Mux{cluster: c, wake: make(chan struct{}, 1), watches: map[*Watch]struct{}{}}
	c.OnSilence(m.Reset)
	c.Go(m.run)
	return m
}

// Changes starts to watch [key, end). notify is called from one goroutine and
// must not block.
func (m *Mux) Changes(key string, end []byte, notify func(Event)) *Watch {
	w := &Watch{key: key, end: end, notify: notify}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(w)
	return w
}

// Deletes starts to watch for deletes of key after revision; see [Mux.Changes].
// It reports no Event with Opened when one that was dropped has been open since.
func (m *Mux) Deletes(key string, revision int64, notify func(Event)) *Watch {
	w := &Watch{key: key, deletes: true, notify: notify}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stream == nil || !m.stream.reuse(w, revision) {
		m.add(w)
	} else {
		m.watches[w] = struct{}{}
	}
	return w
}

// add begins w. The caller holds mu.
func (m *Mux) add(w *Watch) {
	m.watches[w] = struct{}{}
	if m.stream != nil {
		m.stream.create(w)
	} else {
		kit.Wake(m.wake)
	}
}

// Drop ends a watch, unless it is nil. A notify that has begun may still be
// under way.
func (m *Mux) Drop(w *Watch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.watches[w]; !known {
		return
	}
	delete(m.watches, w)
	on := m.stream
	switch {
	case on == nil || on.byID[w.id] != w:
	case w.deletes && w.opened != 0 && on.spare[w.key] == nil:
		on.spare[w.key] = w
		time.AfterFunc(spareFor, func() { m.expire(on, w) })
	default:
		on.cancel(w)
	}
}

// Covers reports whether w, which may be nil, has reported every delete after revision that
// the stream has brought. What is on one stream comes in the order of revisions: a
// delete that another watch reports is later than those that w has still to report,
// unless the server could not send for so long that it holds back 128 reports.
func (m *Mux) Covers(w *Watch, revision int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return w != nil && m.stream != nil && m.stream.byID[w.id] == w && w.opened != 0 && w.opened <= revision
}

// expire ends w on its stream, if nobody has taken it up again.
func (m *Mux) expire(on *stream, w *Watch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if on.spare[w.key] == w {
		delete(on.spare, w.key)
		on.cancel(w)
	}
}

// Reset gives up the present stream.
func (m *Mux) Reset() {
	m.mu.Lock()
	on := m.stream
	m.mu.Unlock()
	if on != nil {
		on.Cancel()
	}
}

func (s *stream) create(w *Watch) {
	s.last++
	w.id, w.opened, w.changed = s.last, 0, 0
	s.byID[w.id] = w
	req := &pb.WatchCreateRequest{Key: []byte(w.key), RangeEnd: w.end, WatchId: w.id, Fragment: true}
	if w.deletes {
		req.Filters, req.PrevKv = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}, true
	}
	s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: req}})
}

func (s *stream) cancel(w *Watch) {
	delete(s.byID, w.id)
	s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: w.id}}})
}

// reuse puts w in the place of a spare watch that would have reported every
// delete after revision, and has none to report. It returns false if there is none.
func (s *stream) reuse(w *Watch, revision int64) bool {
	old := s.spare[w.key]
	if old == nil || old.opened > revision || old.changed > revision {
		return false
	}
	delete(s.spare, w.key)
	w.id, w.opened, w.changed = old.id, old.opened, old.changed
	s.byID[w.id] = w
	return true
}

func (s *stream) send(r *pb.WatchRequest) {
	s.out = append(s.out, r)
	kit.Wake(s.wake)
}

// run keeps a stream open while anybody watches.
func (m *Mux) run() {
	over := m.cluster.Context()
	for {
		select {
		case <-m.wake:
		case <-over.Done():
			return
		}
		pause := reopenPause
		for m.wanted() {
			began := time.Now()
			on, err := m.open()
			if err == nil {
				err = m.serve(on)
			}
			if time.Since(began) > maxReopenPause {
				pause = reopenPause
			}
			if over.Err() != nil {
				return
			}
			m.cluster.Report(err)
			m.broken()
			select {
			case <-time.After(pause):
			case <-over.Done():
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

func (m *Mux) wanted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.watches) > 0
}

func (m *Mux) open() (*stream, error) {
	client, link, err := m.cluster.Watch()
	if err != nil {
		return nil, err
	}
	on := &stream{Watch_WatchClient: client, Stream: link, wake: make(chan struct{}, 1), byID: map[int64]*Watch{}, spare: map[string]*Watch{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stream = on
	for w := range m.watches {
		on.create(w)
	}
	return on, nil
}

// serve works on a stream until it breaks.
func (m *Mux) serve(on *stream) error {
	var sender sync.WaitGroup
	sender.Go(func() { m.send(on) })
	var err error
	for err == nil {
		var resp *pb.WatchResponse
		if resp, err = on.Recv(); err == nil {
			err = on.Admit(resp)
		}
		if err == nil {
			err = m.receive(on, resp)
		}
	}
	m.mu.Lock()
	m.stream = nil
	m.mu.Unlock()
	on.Cancel()
	sender.Wait()
	on.Ended(err)
	return err
}

// send sends what is queued.
func (m *Mux) send(on *stream) {
	for {
		select {
		case <-on.wake:
		case <-on.Context().Done():
			return
		}
		m.mu.Lock()
		out := on.out
		on.out = nil
		m.mu.Unlock()
		for _, r := range out {
			if on.Send(r) != nil {
				return // Recv says why
			}
		}
	}
}

// receive passes one message on. An error gives up the stream.
func (m *Mux) receive(on *stream, resp *pb.WatchResponse) error {
	if resp.Created && resp.Canceled {
		on.LoginExpired() // of which old servers say that rights are missing
		return fmt.Errorf("etcd: watch refused: %s", resp.CancelReason)
	}
	if w, e := m.note(on, resp); w != nil {
		w.notify(e)
	}
	return nil
}

// note records what one message says of a watch, and returns that and what it
// reports; nil if nobody is to know.
func (m *Mux) note(on *stream, resp *pb.WatchResponse) (*Watch, Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := on.byID[resp.WatchId]
	if w == nil {
		return nil, Event{}
	}
	spare := on.spare[w.key] == w
	var e Event
	switch {
	case resp.Canceled: // by the server: start over at the present
		delete(on.byID, resp.WatchId)
		if spare {
			delete(on.spare, w.key)
		} else {
			on.create(w)
		}
	case resp.Created:
		w.opened = resp.Header.Revision
		e = Event{Opened: w.opened}
	case len(resp.Events) > 0:
		last := resp.Events[len(resp.Events)-1]
		w.changed = last.GetKv().GetModRevision()
		e = Event{Changed: w.changed, Created: last.GetPrevKv().GetCreateRevision(), Version: last.GetPrevKv().GetVersion()}
	}
	if spare || e == (Event{}) {
		return nil, e
	}
	return w, e
}

// broken reports to everyone that nothing is seen.
func (m *Mux) broken() {
	m.mu.Lock()
	all := make([]*Watch, 0, len(m.watches))
	for w := range m.watches {
		all = append(all, w)
	}
	m.mu.Unlock()
	for _, w := range all {
		w.notify(Event{})
	}
}
