// Package watch carries all etcd watches of a process on one stream.
package watch

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Event is a report of a watch. It is only a reason to read the store, because it may be old. A
// member that is behind others opens a watch at an older revision, and reports old changes again.
// Only a delete proves something: the owner of the deleted key has lost this key.
//
// The zero Event says that the stream is broken. Changes may be missed until an Event sets Opened.
type Event struct {
	Opened  int64 // if not 0, changes after this revision are reported from now on
	Changed int64 // if not 0, the revision of the last change
	// Created and Version are the deleted key's create revision and version, or
	// 0 when they are not known.
	Created, Version int64
}

// Watch is one watch. The fields after notify are about the present stream, and guarded by Mux.mu.
type Watch struct {
	key     string
	end     []byte
	deletes bool // only deletes are of interest
	notify  func(Event)
	id      int64
	opened  int64 // as in Event; 0 until the server has opened the watch
	changed int64 // as in Event
}

// Mux carries watches on one stream. It opens each watch at the present revision, because a server
// serves watches of older revisions only every 100 ms, and a compaction may remove older revisions.
// After an Event that sets Opened, the user of the watch must read the store, to learn what
// happened before the watch was opened or while the stream was broken. The methods of Mux may be
// called from any number of goroutines.
type Mux struct {
	cluster *cluster.Cluster
	wake    chan struct{}

	mu      sync.Mutex
	watches map[*Watch]struct{}
	stream  *stream // nil when there is none
}

// spareFor is the time that a dropped watch stays open, for reuse by the next watch of its key. A
// caller that waits for a lock again and again mostly follows the same key.
const spareFor = time.Second

// stream is one stream of watches. The fields after wake are guarded by Mux.mu.
type stream struct {
	pb.Watch_WatchClient
	*cluster.Stream
	wake  chan struct{}
	byID  map[int64]*Watch
	spare map[string]*Watch // by key; also in byID
	last  int64
	out   []*pb.WatchRequest
}

// New returns a Mux, which reports changes until the cluster c is closed. The Mux gives up its
// stream when a health check of the cluster gets no answer.
func New(c *cluster.Cluster) *Mux {
	m := &Mux{cluster: c, wake: make(chan struct{}, 1), watches: map[*Watch]struct{}{}}
	c.OnSilence(m.Reset)
	c.Go(m.run)
	return m
}

// Changes watches the keys from key up to, but not including, end. The function notify must not
// block, because one goroutine calls the notify functions of all watches.
func (m *Mux) Changes(key string, end []byte, notify func(Event)) *Watch {
	return m.add(&Watch{key: key, end: end, notify: notify}, 0)
}

// Deletes reports deletes of key that come after revision; see [Mux.Changes]. If a dropped watch of
// key has been open since that revision and has seen no later delete, Deletes reuses it. Such a
// reuse causes no Event that sets Opened.
func (m *Mux) Deletes(key string, revision int64, notify func(Event)) *Watch {
	return m.add(&Watch{key: key, deletes: true, notify: notify}, revision)
}

// add starts the watch w. For the parameter revision, see Deletes.
func (m *Mux) add(w *Watch, revision int64) *Watch {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watches[w] = struct{}{}
	switch {
	case m.stream == nil:
		kit.Wake(m.wake)
	case !w.deletes || !m.stream.reuse(w, revision):
		m.stream.create(w)
	}
	return w
}

// Drop ends the watch w, which may be nil. After Drop, a call of w's notify may still run.
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
		time.AfterFunc(spareFor, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if on.spare[w.key] == w { // no new watch has reused it
				delete(on.spare, w.key)
				on.cancel(w)
			}
		})
	default:
		on.cancel(w)
	}
}

// Covers reports whether w, which may be nil, has been open since the given revision. If so, w has
// reported every later delete of its key that came on the stream. Events on one stream come in
// the order of revisions. So a delete that another watch reports is earlier than the deletes that w
// has yet to report. The order is lost if a server that cannot send holds back 128 reports.
func (m *Mux) Covers(w *Watch, revision int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return w != nil && m.stream != nil && m.stream.byID[w.id] == w && w.opened != 0 && w.opened <= revision
}

// Reset gives up the present stream, so that a new stream is opened.
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

// reuse lets w take over a dropped watch of its key, which must have been open since the given
// revision and have seen no later delete. It returns false if there is no such watch.
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

// run keeps a stream open while there are watches.
func (m *Mux) run() {
	over := m.cluster.Context()
	for {
		select {
		case <-m.wake:
		case <-over.Done():
			return
		}
		for pause := reopenPause; m.wanted(); pause = min(2*pause, maxReopenPause) {
			began := time.Now()
			err := m.serve()
			if time.Since(began) > maxReopenPause {
				pause = reopenPause
			}
			if over.Err() != nil {
				return
			}
			m.cluster.Report(err)
			m.mu.Lock()
			all := slices.Collect(maps.Keys(m.watches))
			m.mu.Unlock()
			for _, w := range all {
				w.notify(Event{})
			}
			select {
			case <-time.After(pause):
			case <-over.Done():
				return
			}
		}
	}
}

func (m *Mux) wanted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.watches) > 0
}

// These limit the pause before a broken stream is opened again. Each new stream may need a login.
const (
	reopenPause    = 50 * time.Millisecond
	maxReopenPause = time.Second
)

// serve opens a stream with all watches. It returns the error with which the stream ends.
func (m *Mux) serve() error {
	client, link, err := m.cluster.Watch()
	if err != nil {
		return err
	}
	on := &stream{Watch_WatchClient: client, Stream: link, wake: make(chan struct{}, 1), byID: map[int64]*Watch{}, spare: map[string]*Watch{}}
	m.mu.Lock()
	m.stream = on
	for w := range m.watches {
		on.create(w)
	}
	m.mu.Unlock()
	var sender sync.WaitGroup
	sender.Go(func() { m.send(on) })
	err = cluster.Receive(on.Stream, on.Recv, func(resp *pb.WatchResponse) error {
		if resp.Created && resp.Canceled {
			return fmt.Errorf("%w: %s", cluster.ErrWatchRefused, resp.CancelReason)
		}
		if w, e := m.note(on, resp); w != nil {
			w.notify(e)
		}
		return nil
	})
	m.mu.Lock()
	m.stream = nil
	m.mu.Unlock()
	on.Cancel()
	sender.Wait()
	return err
}

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
				return // Recv returns the reason
			}
		}
	}
}

// note records what the message resp says about a watch. It returns the watch
// and the Event to report, or nil if there is nothing to report.
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
	case resp.Canceled: // the server has ended the watch: open it again at the present revision
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
