package etcd

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// errDeleted is the cause in the notice that another client has ended a lease.
var errDeleted = errors.New("etcd: key was deleted or its lease revoked from outside")

// The key of a lock that was granted without a wait is watched only once the lock has been held for
// 20 ms (young). A watch costs two messages, and most locks are released sooner. If the lock is
// lost before that, the watch shows the loss when it opens.
const young = 20 * time.Millisecond

// losses finds out which locks of a table are lost, by watching their keys. The
// fields after feeds are guarded by table.mu.
type losses struct {
	table   *table
	feeds   kit.Feeds
	fresh   []*entry // not watched yet, oldest first
	suspect []*entry // watched, but must be read because they may be gone
	looking bool
}

// add makes sure that the lock e is watched 20 ms (young) after its grant, unless its delete has
// begun. It ignores an entry that may not be the lock, because another owner may hold the lock.
func (l *losses) add(e *entry) {
	if !l.feeds.Watched() || !e.held || l.table.watches.Covers(e.watch, e.seenAt) {
		return
	}
	if e.watch != nil { // watched since it waited, but only from a later revision on
		l.suspect = append(l.suspect, e)
		kit.Wake(l.table.wake)
	} else if l.fresh = append(l.fresh, e); len(l.fresh) == 1 {
		kit.Wake(l.table.wake)
	}
}

func (l *losses) addAll() {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	for _, e := range l.table.entries {
		l.add(e)
	}
}

// pause returns the time until there is something to do. The caller holds mu.
func (l *losses) pause() time.Duration {
	switch {
	case len(l.suspect) > 0 && !l.looking:
		return 0
	case len(l.fresh) > 0:
		return time.Until(l.fresh[0].since.Add(young))
	}
	return time.Hour
}

// work begins to watch locks that are old enough, and reads the locks that may be gone.
func (l *losses) work() {
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for len(l.fresh) > 0 && now.Sub(l.fresh[0].since) >= young {
		e := l.fresh[0]
		l.fresh[0] = nil
		l.fresh = l.fresh[1:]
		l.watch(e)
	}
	if len(l.suspect) > 0 && !l.looking {
		suspects := l.suspect
		l.suspect, l.looking = nil, true
		if !t.cluster.Go(func() { l.look(suspects) }) {
			l.looking = false
		}
	}
}

// watch watches the key of the entry e, unless e is deleted or its delete has begun. The caller
// holds mu.
func (l *losses) watch(e *entry) {
	if l.table.entries[e.who()] == e && e.watch == nil && !e.ending {
		e.watch = l.table.watches.Deletes(e.key, e.seenAt, func(ev watch.Event) { l.heard(e, ev) })
	}
}

func (l *losses) heard(e *entry, ev watch.Event) {
	switch {
	case ev.Changed > e.rev:
		l.lost(e)
	case ev.Opened != 0:
		l.table.mu.Lock()
		defer l.table.mu.Unlock()
		if e.held && (ev.Opened > e.seenAt || ev.Opened < e.rev) { // less: a member is behind, or data is lost
			l.suspect = append(l.suspect, e)
			kit.Wake(l.table.wake)
		}
	}
}

// look reads whether the keys of suspects, which may be lost, still exist. If the read fails, look
// resets the stream of watches, because each watch that is opened again makes its lock a suspect.
func (l *losses) look(suspects []*entry) {
	gone, _, err := l.table.verify(l.table.cluster.Context(), suspects)
	if err == nil {
		for e := range gone {
			l.lost(e)
		}
	} else {
		l.table.watches.Reset()
	}
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	l.looking = false
	kit.Wake(l.table.wake)
}

// lost announces that the lock e is gone, unless this process is deleting it. The loss
// of a waiter's entry is not announced, because the waiter does not have the lock yet.
func (l *losses) lost(e *entry) {
	l.table.mu.Lock()
	own, held := e.ending, e.held
	l.table.mu.Unlock()
	if !own && l.table.drop(e) && held {
		l.feeds.Announce(driver.Notice{Kind: driver.NoticeLost, Name: e.name, Owner: e.owner, Token: e.token(), Err: errDeleted})
	}
}

// Watch reports the loss of locks that were acquired through this process, and
// when the store stops or resumes answering.
func (b *Backend) Watch(ctx context.Context, emit func(driver.Notice)) error {
	f := b.table.losses.feeds.Open()
	defer f.Close()
	b.table.losses.addAll()
	defer b.cluster.Follow(f.More())()
	for seen := -1; ; {
		changes, down := b.cluster.State()
		if changes != seen && (seen >= 0 || down != nil) { // at first, only an outage is news
			emit(change(down))
		}
		seen = changes
		for _, n := range f.Take() {
			emit(n)
		}
		select {
		case <-f.More():
		case <-ctx.Done():
			return ctx.Err()
		case <-b.cluster.Context().Done():
			return driver.ErrClosed
		}
	}
}

func change(down error) driver.Notice {
	if down == nil {
		return driver.Notice{Kind: driver.NoticeUp}
	}
	return driver.Notice{Kind: driver.NoticeDown, Err: down}
}
