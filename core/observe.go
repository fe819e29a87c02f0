package core

import (
	"context"
	"time"
)

// ChangeKind says what a [Change] is.
type ChangeKind int

// The kinds of changes.
const (
	Elected ChangeKind = iota + 1 // a leader with a new token
	Updated                       // the same leader published another value, or is seen again after Stale
	Vacant                        // there is no leader
	Stale                         // the store cannot be seen; Leader is the last one known
)

// String returns the kind in lower case.
func (k ChangeKind) String() string { return nameOf(changeNames, k) }

var changeNames = []string{Elected: "elected", Updated: "updated", Vacant: "vacant", Stale: "stale"}

// Change is what an observer sees.
type Change struct {
	Kind   ChangeKind
	Leader Holder    // zero for Vacant
	Since  time.Time // Stale: when the store was first found unreachable
	Err    error     // Stale: why
}

// Observe watches the election without being a candidate (E3). The first
// Change is the present state. The newest wins: a reader that is slow finds
// only the latest change, of a kind that fits what it has read before, and
// tokens never go back. When the store cannot be seen that is a Change of kind
// Stale, and observing goes on.
//
// Observers of one name in a client share what they cost the store: it is
// that of one.
//
// The channel is closed when ctx ends or the client closes. On a closed client
// it yields one Stale with ErrClosed.
func (e *Elector) Observe(ctx context.Context) <-chan Change {
	o := &observer{out: make(chan Change, 1)}
	if err := e.c.begin("observe", e.lock.name); err != nil {
		o.out <- Change{Kind: Stale, Since: time.Now(), Err: err}
		close(o.out)
		return o.out
	}
	defer e.c.end()
	switch s := e.c.streams.join(e.c, e.lock.name, o); {
	case s == nil:
		close(o.out)
	case !e.c.spawn(func() { s.keep(ctx, o) }):
		s.leave(o)
	}
	return o.out
}

// observer is one Observe. Its fields are guarded by its stream.
type observer struct {
	out  chan Change
	from uint64 // the first run of the stream that began after it had joined
	sent Change // the last one put into out
	read Change // the last one known to have been read

	highest uint64
	stale   bool
}

// see takes what the stream reports.
func (o *observer) see(h Holder) {
	if h.Token != 0 && h.Token < o.highest {
		return // older news than what was told
	}
	o.highest = max(o.highest, h.Token)
	o.stale = false
	o.put(Change{Leader: h})
}

// lose takes that the stream cannot see the store.
func (o *observer) lose(err error) {
	if !o.stale {
		o.stale = true
		o.put(Change{Kind: Stale, Leader: o.sent.Leader, Since: time.Now(), Err: err})
	}
}

// put makes ch the newest change. Its kind is seen from the last change that
// was read: one that nobody has read is replaced.
func (o *observer) put(ch Change) {
	select {
	case <-o.out: // unread
	default:
		o.read = o.sent
	}
	if ch.Kind == 0 {
		ch.Kind = kindAfter(o.read, ch.Leader)
	}
	o.sent = ch
	if ch.Kind == 0 { // the reader knows it already
		o.sent = o.read
		return
	}
	o.out <- ch
}

// kindAfter is the kind of change from before to leader h, zero for none.
func kindAfter(before Change, h Holder) ChangeKind {
	was := before.Leader
	same := was.Held() && was.Owner == h.Owner && was.Token == h.Token
	switch {
	case !h.Held() && before.Kind == Vacant:
		return 0
	case !h.Held():
		return Vacant
	case !same:
		return Elected
	case before.Kind == Stale || string(was.Value) != string(h.Value):
		return Updated
	}
	return 0
}
