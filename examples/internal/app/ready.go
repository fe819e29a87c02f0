package app

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
)

// readyTimeout bounds what a probe waits for the store; those of Kubernetes
// give up after a second by default.
const readyTimeout = 800 * time.Millisecond

// readiness answers the probe of a deployment: this process is ready when each
// of its instances reaches its store or follows a leader, so that a rollout with
// a wrong address or password stops at its first pod.
type readiness struct {
	mu        sync.Mutex
	instances []Instance
}

func (r *readiness) add(i Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances = append(r.instances, i)
}

func (r *readiness) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), readyTimeout)
	defer cancel()
	if err := r.check(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

func (r *readiness) check(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.instances) == 0 {
		return fmt.Errorf("no plugin is open yet")
	}
	for _, i := range r.instances {
		if err := i.Client.Check(ctx); err != nil && !i.leader.seen() {
			return fmt.Errorf("%s: %w", i.Name, err)
		}
	}
	return nil
}

// sight is what an instance sees of the leader of its election.
type sight struct {
	mu   sync.Mutex
	sees bool
}

func (s *sight) seen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sees
}

// Follow makes an instance ready for as long as it sees a leader of e, also
// while the store is too busy for a check. It returns when ctx ends.
func (i Instance) Follow(ctx context.Context, e *core.Elector) {
	for change := range e.Observe(ctx) {
		i.leader.mu.Lock()
		i.leader.sees = change.Kind == core.Elected || change.Kind == core.Updated
		i.leader.mu.Unlock()
	}
}
