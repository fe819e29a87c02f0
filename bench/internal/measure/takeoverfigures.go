package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

const (
	// rounding is the time by which a lease may end early if its store counts whole milliseconds.
	rounding = 2 * time.Millisecond
	// margin is the longest time that a takeover may take beyond the TTL and one round trip.
	margin = 50 * time.Millisecond
)

// These are the names of the measured times, which are in nanoseconds.
const (
	tookOver = "takeover" // from the fault to the grant of the new leader
	overdue  = "overdue"  // from the end of the TTL to the grant of the new leader
	notice   = "notice"   // from the resumption of a frozen leader until it knew that it lost
)

// begin prepares the figures. If a lease ends only by its TTL, begin adds the band, which consists
// of the shortest and the longest time that a takeover may take.
func (s *election) begin() {
	s.cell = results.Cell{Latencies: map[string][]int64{}, Values: map[string]float64{}}
	s.slack = margin + kinds.Of(s.in.Host.Backend).ExpiryStep + s.in.Tick + roundTrip(s.in)
	if s.mode.expires {
		v := s.cell.Values
		v["band-low-ns/takeover"], v["band-high-ns/takeover"] = float64(s.in.TTL-s.in.TTL/3-rounding), float64(s.in.TTL+s.slack)
		v["early"], v["late"] = 0, 0
	}
}

func (s *election) took(what string, ns int64) {
	s.cell.Latencies[what] = append(s.cell.Latencies[what], ns)
}

// roundTrip measures the time of one request to the store, or returns 0 if it cannot measure it.
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

func (s *election) sample(h *incident) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range h.names {
		before, after := h.before[i], s.seats[n]
		s.cell.Cycles++
		if after == before {
			s.kept++
			continue
		}
		t := s.terms[after]
		s.taken = append(s.taken, span{h.from, t.GrantedNs})
		if s.mode.expires {
			s.judge(h, s.terms[before], t.GrantedNs)
		}
	}
}

// judge compares the time of a takeover with the end of the old lease. If a renewal was due at
// about the time of the fault, the store may have renewed the lease although no report shows it.
func (s *election) judge(h *incident, old results.Hold, since int64) {
	if old.SentNs == 0 {
		return // the end of the lease is unknown
	}
	ttl := int64(s.in.TTL)
	sent, confirmed := old.SentNs, old.GrantedNs
	if n := len(old.Renewals); n > 0 {
		sent, confirmed = old.Renewals[n-1][0], old.Renewals[n-1][1]
	}
	from, by := sent+ttl, confirmed+ttl // the lease expires between these two times
	if h.until >= sent+ttl/3-int64(margin) {
		by = max(by, h.until+ttl)
	}
	s.took(overdue, max(0, since-by))
	switch {
	case since < from-int64(rounding):
		s.cell.Values["early"]++
		s.earliest = max(s.earliest, time.Duration(from-since))
	case since > by+int64(s.slack):
		s.cell.Values["late"]++
	}
}

// noticed waits until the victim (the old leader) knows that it leads none of its names any more.
// If resumed is not 0, noticed counts the names that the victim believed to lead after that time.
func (s *election) noticed(ctx context.Context, h *incident, resumed int64) error {
	all := func() bool {
		return !slices.ContainsFunc(h.before, func(i int) bool { return s.terms[i].DoneNs == 0 })
	}
	if err := s.await(ctx, s.in.TTL+grace, "the old leader knows that it lost", all); err != nil || resumed == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stale := s.cell.Values["stale-writes"]
	for _, i := range h.before {
		t := s.terms[i]
		s.took(notice, max(0, t.DoneNs-resumed))
		if t.ValidNs > resumed {
			stale++
		}
	}
	s.cell.Values["stale-writes"] = stale
	return nil
}

func (s *election) measured(elapsed time.Duration) results.Cell {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cell
	c.Elapsed = elapsed
	s.passing.note(&c, tookOver, s.taken)
	c.Attempts = s.failed
	for _, t := range s.terms {
		c.Attempts = append(c.Attempts, t.Attempt())
	}
	for op := range c.Latencies {
		longest(&c, op)
	}
	if early := c.Values["early"]; early > 0 {
		c.Findings = []string{fmt.Sprintf("%v of %d names had a new leader before the TTL of the old one was over, by up to %v", early, c.Cycles, s.earliest)}
	}
	if s.mode.server {
		c.Values["kept"] = float64(s.kept) / float64(max(1, c.Cycles))
	}
	return c
}
