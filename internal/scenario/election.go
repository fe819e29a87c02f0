package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/host"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/store"
)

// election is what is known of the candidates of one cell.
type election struct {
	in     Input
	mode   mode
	figure figures
	watch  *follower // nil without anything to observe with

	living []*proxiedCandidate // used by the goroutine that runs the cell
	next   int32               // id of the next candidate

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each report
	seats    []seat        // by name
	attempts []record.Attempt
	bounds   []bound        // by attempt
	open     map[tenure]int // attempts whose end was not reported, by index
	lost     map[tenure]host.Report
	failure  string // the last error that a candidate has met
}

// tenure is a name as one candidate has it.
type tenure struct {
	candidate int32
	name      int32
}

// seat is who leads a name, as far as reported.
type seat struct {
	leader  *proxiedCandidate
	attempt int   // its index
	since   int64 // the grant's return
}

// bound is when the last request for an attempt's lease was sent, and when the
// store lets it expire; see [host.Report].
type bound struct{ sent, freeFrom, freeBy int64 }

func newElection(in Input, m mode) *election {
	return &election{
		in: in, mode: m, seats: make([]seat, len(in.Names)), changed: make(chan struct{}),
		open: map[tenure]int{}, lost: map[tenure]host.Report{}, figure: newFigures(in, m),
	}
}

// join starts one more candidate.
func (s *election) join(ctx context.Context) (err error) {
	c := &proxiedCandidate{id: s.next}
	s.next++
	spec := s.in.Host
	if s.mode.proxied {
		spec.Config, err = store.Route(spec.Config, func(address string) (string, error) {
			p, err := fault.NewProxy(address)
			if err != nil {
				return "", err
			}
			c.proxies = append(c.proxies, p)
			return p.Addr(), nil
		})
		if err != nil {
			return errors.Join(err, c.closeProxies())
		}
	}
	campaign := host.Campaign{Spec: spec, Baseline: s.in.Baseline, Names: s.in.Names, TTL: s.in.TTL, Tick: s.in.Tick}
	c.Candidate, err = host.StartCandidate(ctx, campaign, s.in.Clock, func(_ *host.Candidate, r host.Report) { s.hear(c, r) })
	if err != nil {
		return errors.Join(err, c.closeProxies())
	}
	s.living = append(s.living, c)
	return nil
}

// bury kills the victim, by the given means, and ends what it held.
func (s *election) bury(h *incident, kill func() error) error {
	s.living = slices.DeleteFunc(s.living, func(c *proxiedCandidate) bool { return c == h.victim })
	err := kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.in.Clock.Now()
	for t, i := range s.open {
		if t.candidate == h.victim.id {
			a := &s.attempts[i]
			a.Ended, a.Done, a.End = max(h.from, a.Answered), now, record.EndKilled
			delete(s.open, t)
		}
	}
	return err
}

// hear takes down what a candidate reports.
func (s *election) hear(c *proxiedCandidate, r host.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := tenure{c.id, r.Name}
	switch r.Kind {
	case host.Granted:
		s.open[t] = len(s.attempts)
		s.seats[r.Name] = seat{leader: c, attempt: len(s.attempts), since: r.At}
		s.attempts = append(s.attempts, record.Attempt{
			Client: c.id, Name: r.Name, Asked: r.Asked, Answered: r.At, Token: r.Token, Outcome: record.Granted,
		})
		s.bounds = append(s.bounds, bound{r.Asked, r.FreeFrom, r.FreeBy})
	case host.Renewed:
		// It is told a moment later, and may be of the term before.
		if i, ok := s.open[t]; ok && r.Asked > s.bounds[i].sent {
			s.bounds[i] = bound{r.Asked, r.FreeFrom, r.FreeBy}
		}
	case host.Lost:
		s.lost[t] = r
		s.finish(t, r.Wrote, r.At, record.EndLost)
	case host.Resigned:
		end := record.EndReleased
		if r.Cause != "" {
			end = record.EndReleaseFailed
		}
		s.finish(t, r.Asked, r.At, end)
	case host.Failed:
		s.failure = r.Cause
		s.attempts = append(s.attempts, record.Attempt{Client: c.id, Name: r.Name, Asked: r.At, Answered: r.At, Outcome: record.Failed})
		s.bounds = append(s.bounds, bound{})
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// finish ends an attempt. Ended is when the candidate last acted as a leader.
func (s *election) finish(t tenure, ended, done int64, end record.End) {
	i, ok := s.open[t]
	if !ok {
		return
	}
	delete(s.open, t)
	a := &s.attempts[i]
	a.Ended, a.Done, a.End = max(ended, a.Answered), done, end
	if s.seats[t.name].attempt == i {
		s.seats[t.name].leader = nil
	}
}

// await waits until done, which is called with what is known locked.
func (s *election) await(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		s.mu.Lock()
		ok, changed, failure := done(), s.changed, s.failure
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			if failure != "" {
				failure = ": " + failure
			}
			return fmt.Errorf("%w: not within %v: %s%s", ErrNothingDone, limit, what, failure)
		}
	}
}

// led reports whether each of the names has a leader, by a grant after the
// given time.
func (s *election) led(names []int32, after int64) func() bool {
	return func() bool {
		return !slices.ContainsFunc(names, func(n int32) bool {
			return s.seats[n].leader == nil || s.seats[n].since <= after
		})
	}
}

// confirmed reports whether each of the names has a leader whose grant or
// renewal was sent after the given time.
func (s *election) confirmed(names []int32, after int64) func() bool {
	return func() bool {
		return !slices.ContainsFunc(names, func(n int32) bool {
			seat := s.seats[n]
			return seat.leader == nil || seat.since <= after && s.bounds[seat.attempt].sent <= after
		})
	}
}

// end closes the hosts that live, on a budget of its own.
func (s *election) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if s.watch != nil {
		s.watch.end()
	}
	var errs []error
	for _, c := range s.living {
		// A cell that was ended in the middle of a harm leaves it.
		errs = append(errs, c.Resume(), c.heal())
	}
	var closing sync.WaitGroup
	for _, c := range s.living {
		closing.Go(func() {
			if err := errors.Join(c.Close(ctx), c.closeProxies()); err != nil {
				s.mu.Lock()
				errs = append(errs, err)
				s.mu.Unlock()
			}
		})
	}
	closing.Wait()
	return errors.Join(errs...)
}
