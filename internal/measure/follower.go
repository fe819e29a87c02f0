package measure

import (
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/load"
)

// follower observes elections without being a candidate, as those do that send
// their requests to the leader.
type follower struct {
	stop context.CancelFunc
	work sync.WaitGroup

	mu   sync.Mutex
	seen []map[uint64]sight // by name and token
}

// sight is when a leader was seen first, and since when there was none.
type sight struct {
	at     int64
	vacant int64 // 0: the one before was never seen to be gone
}

// none is for how long nobody was seen to lead.
func (s sight) none() int64 {
	if s.vacant == 0 {
		return 0
	}
	return s.at - s.vacant
}

// follow starts the follower, where the subject has an Observe.
func (s *election) follow(ctx context.Context) error {
	client := s.in.client()
	if client == nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	f := &follower{stop: stop, seen: make([]map[uint64]sight, len(s.in.Names))}
	for i, name := range s.in.Names {
		f.seen[i] = map[uint64]sight{}
		e, err := client.Elector(name, &core.ElectorOptions{TTL: s.in.TTL})
		if err != nil {
			f.end()
			return err
		}
		changes := e.Observe(ctx)
		f.work.Go(func() { f.observe(i, changes, s.in.Clock) })
	}
	s.watch = f
	return nil
}

func (f *follower) observe(name int, changes <-chan core.Change, clock load.Clock) {
	var vacant int64
	for ch := range changes {
		now := clock.Now()
		switch ch.Kind {
		case core.Vacant:
			vacant = now
		case core.Elected:
			f.mu.Lock()
			f.seen[name][ch.Leader.Token] = sight{at: now, vacant: vacant}
			f.mu.Unlock()
			vacant = 0
		}
	}
}

// sightTime bounds how long after a takeover a follower has to see it.
const sightTime = 2 * time.Second

// see waits until the follower has seen the leader with that token.
func (f *follower) see(name int32, token uint64) (sight, bool) {
	for deadline := time.Now().Add(sightTime); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		at, ok := f.seen[name][token]
		f.mu.Unlock()
		if ok || time.Now().After(deadline) {
			return at, ok
		}
	}
}

func (f *follower) end() {
	f.stop()
	f.work.Wait()
}
