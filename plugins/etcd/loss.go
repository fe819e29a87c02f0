package etcd

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// errDeleted is the cause in a notice about a lock that another client has ended.
var errDeleted = errors.New("etcd: key was deleted or its lease revoked from outside")

// A lock that was granted without a wait is watched only after it has been held for 20 ms (young).
// Most locks are released sooner, and a watch costs two messages. If a lock is lost within these 20
// ms, its watch shows the loss when the watch opens.
const young = 20 * time.Millisecond

// watchLater makes the table watch the entry e once e's owner has held the lock for 20 ms (young),
// unless the delete of e has begun by then. If e is not known to be the lock, watchLater does
// nothing. The caller holds mu.
func (t *table) watchLater(e *entry) {
	if !t.cluster.Notices().Watched() || !e.held || t.watches.Covers(e.watch, e.seenAt) {
		return
	}
	if e.watch != nil { // e is watched, but the watch may have missed a change after seenAt
		t.suspicion(e)
	} else if t.fresh = append(t.fresh, e); len(t.fresh) == 1 {
		kit.Wake(t.wake)
	}
}

// watch opens a watch of the key of the entry e, unless e is deleted or its delete has begun. The
// caller holds mu.
func (t *table) watch(e *entry) {
	if t.entries[e.who()] == e && e.watch == nil && !e.ending {
		e.watch = t.watches.Deletes(e.key, e.seenAt, func(ev watch.Event) { t.heard(e, ev) })
	}
}

func (t *table) heard(e *entry, ev watch.Event) {
	switch {
	case ev.Changed > e.rev:
		t.lost(e)
	case ev.Opened != 0:
		t.mu.Lock()
		defer t.mu.Unlock()
		if e.held && (ev.Opened > e.seenAt || ev.Opened < e.rev) { // below e.rev if the member is behind or data is lost
			t.suspicion(e)
		}
	}
}

// suspicion makes the look method read the entry e. The caller holds mu.
func (t *table) suspicion(e *entry) {
	if t.suspect = append(t.suspect, e); len(t.suspect) == 1 {
		t.cluster.Go(t.look)
	}
}

// look reads whether the keys of all suspects still exist. If the read fails, look resets the
// stream of watches. Each watch is then opened again, which makes its lock a suspect.
func (t *table) look() {
	t.looking.Lock() // so that suspects that come during a read share the next read
	defer t.looking.Unlock()
	t.mu.Lock()
	suspects := t.suspect
	t.suspect = nil
	t.mu.Unlock()
	gone, err := t.verify(t.cluster.Context(), suspects)
	if err != nil {
		t.watches.Reset()
		return
	}
	for e := range gone {
		t.lost(e)
	}
}

// lost announces that the lock of the entry e is gone, unless this process is deleting e. The loss
// of a waiter's entry is not announced, because the waiter does not have the lock yet.
func (t *table) lost(e *entry) {
	if now := t.snapshot(e); !now.ending && t.drop(e) && now.held {
		t.cluster.Notices().Announce(driver.Notice{Kind: driver.NoticeLost, Name: e.name, Owner: e.owner, Token: e.token(), Err: errDeleted})
	}
}

// Watch reports the loss of each lock that was acquired through this process. It also reports when
// the store stops answering and when it answers again.
func (b *Backend) Watch(ctx context.Context, emit func(driver.Notice)) error {
	f, down := b.cluster.Follow()
	if down != nil {
		emit(driver.Notice{Kind: driver.NoticeDown, Err: down})
	}
	defer f.Close()
	b.table.mu.Lock()
	for _, e := range b.table.entries {
		b.table.watchLater(e)
	}
	b.table.mu.Unlock()
	return f.Pass(ctx, b.cluster.Context(), emit)
}
