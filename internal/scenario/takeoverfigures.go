package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/host"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/store"
)

const (
	// rounding is by how much a store that counts milliseconds may let a lease
	// go before its time.
	rounding = 2 * time.Millisecond
	// margin is what a takeover may take beyond the end of the TTL and one
	// round trip.
	margin = 50 * time.Millisecond
)

// figures are the samples of a cell, in nanoseconds.
type figures struct {
	low, high int64 // the band: the least and the most that a takeover by expiry may take
	slack     int64 // from the end of the TTL to the upper end of the band

	took     []int64 // from the harm to the new leader's grant
	overdue  []int64 // from the end of the TTL to the grant
	observed []int64 // from the harm until a follower saw the new leader
	vacant   []int64 // for how long a follower saw none
	notice   []int64 // from the resumption of a frozen leader until it knew

	early, late, kept, stale, judged int
	earliest                         int64 // the most by which a takeover came early
}

func newFigures(in Input, m mode) figures {
	f := figures{slack: int64(margin + store.Of(in.Host.Backend).ExpiryStep + in.Tick + roundTrip(in))}
	if m.expires {
		f.low = int64(in.TTL - in.TTL/3 - rounding)
		f.high = int64(in.TTL) + f.slack
	}
	return f
}

// roundTrip is about one question to the store and its answer, 0 where nobody
// can be asked.
func roundTrip(in Input) time.Duration {
	client := in.client()
	if client == nil || len(in.Names) == 0 {
		return 0
	}
	e, err := client.Elector(in.Names[0], &core.ElectorOptions{TTL: in.TTL})
	if err != nil {
		return 0
	}
	var took []time.Duration
	for range 9 {
		start := time.Now()
		if _, err := e.Leader(context.Background()); err != nil {
			return 0
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// sample takes down the takeovers after one harm.
func (s *election) sample(h *incident) {
	s.mu.Lock()
	tokens := map[int32]uint64{} // of the new leaders
	for i, n := range h.names {
		before, after := h.before[i], s.seats[n]
		s.figure.judged++
		if after == before {
			s.figure.kept++
			continue
		}
		t := s.terms[after]
		s.figure.took = append(s.figure.took, t.Answered-h.from)
		tokens[n] = t.Token
		if s.mode.expires {
			s.judge(h, s.terms[before], t.Answered)
		}
	}
	s.mu.Unlock()
	for n, token := range tokens {
		if s.watch == nil || token == 0 {
			continue
		}
		if seen, ok := s.watch.see(n, token); ok {
			s.figure.observed = append(s.figure.observed, max(0, seen.at-h.from))
			s.figure.vacant = append(s.figure.vacant, seen.none())
		}
	}
}

// judge compares a takeover with the time that the lease had left. A renewal
// that was due around the harm may have reached the store without a report.
func (s *election) judge(h *incident, old host.Term, since int64) {
	if old.FreeBy == 0 {
		return // nobody here knows
	}
	ttl := int64(s.in.TTL)
	if due := old.FreeFrom - ttl + ttl/3; h.until >= due-int64(margin) {
		old.FreeBy = max(old.FreeBy, h.until+ttl)
	}
	f := &s.figure
	f.overdue = append(f.overdue, max(0, since-old.FreeBy))
	switch {
	case since < old.FreeFrom-int64(rounding):
		f.early++
		f.earliest = max(f.earliest, old.FreeFrom-since)
	case since > old.FreeBy+f.slack:
		f.late++
	}
}

// noticed waits until the victim knows of every name that it has lost, and
// counts what it did as a leader after the moment resumed, unless that is 0.
func (s *election) noticed(ctx context.Context, h *incident, resumed int64) error {
	all := func() bool {
		return !slices.ContainsFunc(h.before, func(i int) bool { return s.terms[i].End != record.EndLost })
	}
	if err := s.await(ctx, s.in.TTL+grace, "the old leader knows that it lost", all); err != nil || resumed == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range h.before {
		t := s.terms[i]
		s.figure.notice = append(s.figure.notice, max(0, t.Done-resumed))
		if t.Ended > resumed {
			s.figure.stale++
		}
	}
	return nil
}

// cell is what was measured.
func (s *election) cell(elapsed time.Duration) record.Cell {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.figure
	c := record.Cell{Cycles: f.judged, Elapsed: elapsed, Latencies: map[string][]int64{}, Values: map[string]float64{}}
	for _, t := range s.terms {
		c.Attempts = append(c.Attempts, t.Attempt)
	}
	for op, samples := range map[string][]int64{
		"takeover": f.took, "overdue": f.overdue, "observed": f.observed, "vacant": f.vacant, "notice": f.notice,
	} {
		if len(samples) > 0 {
			c.Latencies[op] = samples
			longest(&c, op)
		}
	}
	if f.early > 0 {
		c.Findings = []string{fmt.Sprintf("%d of %d names had a new leader before the TTL of the old one was over, by up to %v",
			f.early, f.judged, time.Duration(f.earliest))}
	}
	if s.mode.server {
		c.Values["kept"] = float64(f.kept) / float64(max(1, f.judged))
	}
	if s.mode.expires {
		c.Values["band-low-ns/takeover"], c.Values["band-high-ns/takeover"] = float64(f.low), float64(f.high)
		c.Values["early"], c.Values["late"] = float64(f.early), float64(f.late)
	}
	if len(f.notice) > 0 {
		c.Values["stale-writes"] = float64(f.stale)
	}
	return c
}
