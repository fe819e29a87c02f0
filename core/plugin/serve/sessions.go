package serve

import (
	"sync"
	"time"
)

// aloneFor is how long a plugin stays that nobody can reach.
const aloneFor = 5 * time.Second

// sessions counts the heartbeat streams. A host keeps one open for as long as it
// has its plugin, a frozen host too; so when there has been none for aloneFor
// since the last one ended, or since the host let go of us without one, nobody
// will ever come, and alone is called.
type sessions struct {
	alone func()

	mu    sync.Mutex
	open  int
	timer *time.Timer
}

func (s *sessions) began() (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return s.ended
}

func (s *sessions) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.wait()
}

// letGo says that the host opens none any more.
func (s *sessions) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait()
}

// wait starts the time when no stream is open. The caller holds mu.
func (s *sessions) wait() {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.open == 0 {
		s.timer = time.AfterFunc(aloneFor, s.over)
	}
}

func (s *sessions) over() {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	if open == 0 {
		s.alone()
	}
}
