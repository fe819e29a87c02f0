package etcd

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/feed"
)

// errDeleted is the cause in the notice of a lease that somebody else has ended.
var errDeleted = errors.New("etcd: key was deleted or its lease revoked from outside")

// young is how long a lock is held before its key is watched: most are released
// sooner, and a watch costs two messages. A loss before that is noticed when
// the watch is opened.
const young = 20 * time.Millisecond

// sentry watches the keys of held locks. What follows feeds is guarded by held.mu.
type sentry struct {
	h     *held
	feeds feed.Feeds
	fresh []*grant // not watched yet, oldest first
	check []*grant // watched, and to be looked for
	busy  bool     // a look is under way
}

func (s *sentry) init(h *held) { s.h = h }

// add has g watched once it is old enough, unless it is being deleted then. A
// lock that it is not known to have may be another owner's.
func (s *sentry) add(g *grant) {
	if !s.feeds.Watched() || g.watch != nil || g.token == 0 {
		return
	}
	if s.fresh = append(s.fresh, g); len(s.fresh) == 1 {
		signal(s.h.wake)
	}
}

func (s *sentry) pause() time.Duration {
	switch {
	case len(s.check) > 0 && !s.busy:
		return 0
	case len(s.fresh) > 0:
		return time.Until(s.fresh[0].born.Add(young))
	}
	return time.Hour
}

// work watches what is old enough and looks for what may be gone.
func (s *sentry) work() {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for len(s.fresh) > 0 && now.Sub(s.fresh[0].born) >= young {
		g := s.fresh[0]
		s.fresh = s.fresh[1:]
		if h.grants[g.who()] == g && g.watch == nil && !g.leaving {
			g.watch = h.b.hub.add(h.b.space.hold(g.name), nil, true, func(e event) { s.hear(g, e) })
		}
	}
	if len(s.check) > 0 && !s.busy {
		suspects := s.check
		s.check, s.busy = nil, true
		if !h.b.spawn(func() { s.look(suspects) }) {
			s.busy = false
		}
	}
}

// hear is called by the hub.
func (s *sentry) hear(g *grant, e event) {
	switch {
	case e.changed > g.rev:
		s.lost(g)
	case e.opened != 0:
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		if e.opened > g.known || e.opened < g.rev { // less: a member is behind, or the data is gone
			s.check = append(s.check, g)
			signal(s.h.wake)
		}
	}
}

// look reads whether suspects are still there. When it fails the stream will
// break too, and each watch that is opened again makes its lock a suspect.
func (s *sentry) look(suspects []*grant) {
	gone, _, err := s.h.verify(s.h.b.ctx, suspects)
	if err == nil {
		for _, g := range gone {
			s.lost(g)
		}
	} else {
		s.h.b.hub.reset()
	}
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.busy = false
	signal(s.h.wake)
}

// lost tells of a lock that is gone, unless this process deletes it itself.
func (s *sentry) lost(g *grant) {
	s.h.mu.Lock()
	own := g.leaving
	s.h.mu.Unlock()
	if !own && s.h.lost(g) {
		s.feeds.Announce(driver.Notice{Kind: driver.NoticeLost, Name: g.name, Owner: g.owner, Token: g.token, Err: errDeleted})
	}
}

// begin has all locks watched that are held already.
func (s *sentry) begin() {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	for _, g := range s.h.grants {
		s.add(g)
	}
}

// Watch pushes the loss of locks that were got through this process, and tells
// when the store stops and begins to answer.
func (b *Backend) Watch(ctx context.Context, emit func(driver.Notice)) error {
	f := b.held.sentry.feeds.Open()
	defer f.Close()
	b.held.sentry.begin()
	b.health.follow(f.More(), true)
	defer b.health.follow(f.More(), false)
	changes, down := b.health.state()
	if down != nil {
		emit(turn(down))
	}
	for {
		now, down := b.health.state()
		if now != changes {
			emit(turn(down))
		}
		changes = now
		for _, n := range f.Take() {
			emit(n)
		}
		select {
		case <-f.More():
		case <-ctx.Done():
			return ctx.Err()
		case <-b.ctx.Done():
			return driver.ErrClosed
		}
	}
}

func turn(down error) driver.Notice {
	if down == nil {
		return driver.Notice{Kind: driver.NoticeUp}
	}
	return driver.Notice{Kind: driver.NoticeDown, Err: down}
}
